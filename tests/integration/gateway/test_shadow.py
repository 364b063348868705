"""Shadow mode: every intent gets an outcome, and the gateway sends only GET requests, with a read-only account."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cli.dev.kubeconfig import write_kubeconfig
from cli.dev.local_control_plane import Cluster
from services.gateway.kube_api.api_errors import Forbidden
from services.gateway.kube_api.client import KubeApi, WriteInShadow
from services.gateway.kube_api.resources import PODS
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.log.reader import Row
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.effect_harness import placed, unschedulable
from tests.integration.gateway.fault_proxy import FaultProxy
from tests.support.gateway_process import running

ACCOUNT = ("koordinator-system", "koordstream-shadow")
NODE_SLOS = "nodeslos.slo.koordinator.sh"
SHADOW = {"KOORD_GATEWAY_SHADOW": "true", "KOORD_GATEWAY_SWEEP_INTERVAL_S": "0.2"}


@pytest.fixture
def shadow_kubeconfig(cluster: Cluster, proxy: FaultProxy, tmp_path: Path) -> Path:
    """The read-only account, through the proxy."""
    token, ca = cluster.service_account_token(*ACCOUNT), cluster.ca_file.read_bytes()
    return write_kubeconfig(tmp_path / "shadow", url=proxy.url, ca=ca, user=ACCOUNT[1], credentials=token)


def suppressed(rows: list[Row]) -> dict[str, str]:
    """Returns `context/seq` of each intent -> type of its outcome."""
    return {row.cause: row.type.split(".")[2] for row in rows if row.cause}


async def test_every_intent_is_suppressed_and_a_gateway_outside_shadow_mode_applies_desired_states_only(
    shadow_kubeconfig: Path,
    kubeconfig: Path,
    database: str,
    tmp_path: Path,
    make_pod: MakePod,
    namespace: str,
    kube_nodes: MakeNodes,
    proxy: FaultProxy,
    cluster: Cluster,
) -> None:
    kube_nodes("sh-1")
    bind, evict, report = make_pod("bind"), make_pod("evict"), make_pod("report")
    label: dict[str, Any] = {"metadata": {"labels": {"node.koordinator.sh/desired": "ours"}}}
    async with running(shadow_kubeconfig, database, tmp_path, SHADOW) as system:
        await system.until(lambda rows: any(row.type.endswith(".InitialListCompleted.v1") for row in rows))
        records = await system.decide(
            placed(bind, "sh-1"),
            EvictionRequested(pod=f"{namespace}/evict", pod_uid=evict["metadata"]["uid"], reason="too hot"),
            unschedulable(report),
        )
        records += await system.decide(
            FieldsDesired(resource="nodes", name="sh-1", fields="labels", patch=label),
            ObjectDesired(resource=NODE_SLOS, name="sh-1", body=None),
            context="slo",
        )
        causes = [f"{record.context}/{record.seq}" for record in records]
        kinds = ["BindSuppressed", "EvictionSuppressed", *["DesiredStateSuppressed"] * 3]
        rows = await system.until(lambda rows: len(suppressed(rows)) == len(causes))
        assert suppressed(rows) == dict(zip(causes, kinds, strict=True))
        cluster.api.call("PATCH", "/api/v1/nodes/sh-1", {"metadata": {"labels": {"node.koordinator.sh/desired": "x"}}})
        drift = '"node.koordinator.sh/desired":"x"'
        await system.until(lambda rows: any(row.key == "sh-1" and drift in row.data.decode() for row in rows))
        await asyncio.sleep(0.5)  # two checks for missing objects
        assert {method for method, _ in proxy.requests} == {"GET"}
        assert len([row for row in await system.rows() if row.cause]) == len(causes), "one outcome each"

        # The same log with the gateway's account and without shadow mode: desired states are written now.
        await asyncio.to_thread(system.gateway.stop)
        live = {"KOORD_GATEWAY_SHADOW": "false", "KOORD_GATEWAY_KUBECONFIG": str(kubeconfig)}
        system.gateway.env = {**(system.gateway.env or {}), **live}
        await asyncio.to_thread(system.gateway.start)
        rows = await system.until(lambda rows: len([row for row in rows if row.cause]) == len(causes) + 3)
        last = suppressed(rows)
        assert [last[cause] for cause in causes] == [
            "BindSuppressed",
            "EvictionSuppressed",
            *["DesiredStateApplied"] * 3,
        ]
        assert (
            cluster.api.call("GET", "/api/v1/nodes/sh-1")["metadata"]["labels"]["node.koordinator.sh/desired"] == "ours"
        )
        assert proxy.count("POST", "/binding") == proxy.count("POST", "/eviction") == 0


async def test_a_read_only_client_sends_only_get_requests(shadow_kubeconfig: Path, proxy: FaultProxy) -> None:
    async with KubeApi(str(shadow_kubeconfig), timeout_s=2, read_only=True) as api:
        with pytest.raises(WriteInShadow):
            await api.create_binding("default/web", uid="u", node="sh-1")
        with pytest.raises(WriteInShadow):
            await api.delete(PODS, "default/web")
        with pytest.raises(Forbidden):  # it only lists and watches
            await api.find(PODS, "default/web")
    assert {method for method, _ in proxy.requests} == {"GET"}
