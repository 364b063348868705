"""The gateway's check of its account's rules on a real API server, and the report of `koord doctor`."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cli.dev.kubeconfig import write_kubeconfig
from cli.dev.local_control_plane import Cluster
from cli.doctor.all_checks import examine
from cli.doctor.finding import Finding
from cli.supervisor.endpoints import Endpoints
from services.gateway.needed_rbac_rules import rules
from services.gateway.rbac_permission_check import check
from services.gateway.settings import GatewaySettings
from shared.bus import Bus
from shared.events.cluster import MissingPermission
from shared.kube.rbac_permissions import SUBJECT, Permissions
from tests.integration.gateway.conftest import ACCOUNT
from tests.support.gateway_process import running

NOW_NS = 1_800_000_000_000_000_000
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def settings_for(cluster: Cluster, folder: Path, account: tuple[str, str], *, shadow: bool = False) -> GatewaySettings:
    token = cluster.service_account_token(*account)
    file = write_kubeconfig(
        folder / f"{account[1]}.kubeconfig",
        url=cluster.url,
        ca=cluster.ca_file.read_bytes(),
        user=account[1],
        credentials=token,
    )
    return GatewaySettings(kubeconfig=str(file), shadow=shadow)


@pytest.fixture
def limited_account(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """A service account that may read nodes and pods and bind nothing."""
    name = f"limited-account-{secrets.token_hex(3)}"
    role = {
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}],
    }
    subject = {"kind": "ServiceAccount", "name": name, "namespace": ACCOUNT[0]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    cluster.api.call("POST", f"/api/v1/namespaces/{ACCOUNT[0]}/serviceaccounts", {"metadata": {"name": name}})
    cluster.api.call("POST", ROLES, role)
    cluster.api.call("POST", BINDINGS, {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference})
    yield ACCOUNT[0], name
    for path in (f"{BINDINGS}/{name}", f"{ROLES}/{name}", f"/api/v1/namespaces/{ACCOUNT[0]}/serviceaccounts/{name}"):
        cluster.api.call("DELETE", path)


async def test_the_accounts_of_k8s_rbac_have_all_needed_rules(cluster: Cluster, tmp_path: Path) -> None:
    full = await check(settings_for(cluster, tmp_path, ACCOUNT), NOW_NS)
    assert (full.problem, full.missing) == ("", ())
    assert full.account == "system:serviceaccount:koordinator-system:koordstream-gateway"
    assert abs(full.ahead_s) < 5
    shadow = settings_for(cluster, tmp_path, ("koordinator-system", "koordstream-shadow"), shadow=True)
    reading = await check(shadow, NOW_NS)
    assert (reading.problem, reading.missing, reading.shadow) == ("", (), True)
    assert {rule.verb for rule in reading.allowed} == {"list", "watch"}
    assert len(set(rules(shadow))) < len(set(rules(GatewaySettings())))


async def test_missing_rules_are_reported_with_their_purpose(
    cluster: Cluster, tmp_path: Path, limited_account: tuple[str, str]
) -> None:
    found = await check(settings_for(cluster, tmp_path, limited_account), NOW_NS)
    missing = {str(rule): rule.needed_for for rule in found.missing}
    assert missing["create pods/binding"] == "binding pods to their nodes"
    assert "list nodes" not in missing
    assert "list configmaps in koordinator-system" in missing
    assert "patch nodemetrics.slo.koordinator.sh/status" in missing


async def test_an_unreachable_api_server_is_reported_as_a_problem(tmp_path: Path, cluster: Cluster) -> None:
    file = write_kubeconfig(
        tmp_path / "away", url="https://127.0.0.1:1", ca=cluster.ca_file.read_bytes(), user="x", credentials="token"
    )
    found = await check(GatewaySettings(kubeconfig=str(file), timeout_s=2), NOW_NS)
    assert found.problem
    assert found.allowed == found.missing == ()


async def test_the_doctor_queries_the_gateway_over_the_bus(
    cluster: Cluster, tmp_path: Path, database: str, limited_account: tuple[str, str]
) -> None:
    settings = settings_for(cluster, tmp_path, limited_account)
    async with running(Path(settings.kubeconfig), database, tmp_path) as system:
        await system.until(lambda rows: any(row.type.endswith("WriterStarted.v1") for row in rows))
        assert system.gateway.env
        nats = system.gateway.env["KOORD_NATS"]
        bus = Bus(nats, name="test")
        await bus.start()
        answer = msgspec.json.decode(await bus.request(SUBJECT, b"", deadline_s=20), type=Permissions)
        await bus.close()
        assert answer.missing
        found = await examine(Endpoints(database, nats), tmp_path)
        errors = [one for one in found if one.area == "rbac" and one.severity == "error"]
        assert any("may not create pods/binding, needed for binding pods to their nodes" in one.what for one in errors)
        assert all("k8s/rbac" in one.do for one in errors)
        rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        cluster.api.call("PATCH", f"{ROLES}/{limited_account[1]}", {"rules": [rule]})

        async def errors_now() -> list[Finding]:
            return [
                one
                for one in await examine(Endpoints(database, nats), tmp_path)
                if one.area == "rbac" and one.severity == "error"
            ]

        for _ in range(20):  # the API server's authorizer receives the change by a watch of its own
            if not (left := await errors_now()):
                break
        assert left == []


async def test_in_shadow_mode_no_right_is_needed_that_an_earlier_start_without_it_lacked(
    cluster: Cluster, tmp_path: Path, database: str
) -> None:
    settings = settings_for(cluster, tmp_path, (ACCOUNT[0], "koordstream-shadow"))
    earlier = MissingPermission(name="default/web-1", rule="create pods/binding")
    env = {"KOORD_GATEWAY_SHADOW": "true"}
    async with running(Path(settings.kubeconfig), database, tmp_path, env, own=[earlier]) as system:
        await system.until(lambda rows: any(row.type.endswith(".InitialListCompleted.v1") for row in rows))
        assert system.gateway.env
        found = await examine(Endpoints(database, system.gateway.env["KOORD_NATS"]), tmp_path)
    rights = [one for one in found if one.area == "rbac"]
    assert [one.severity for one in rights if one.severity != "ok"] == []
    assert any("may read what shadow mode follows" in one.what for one in rights)
