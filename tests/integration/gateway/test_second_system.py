"""Two systems with logs of their own on one API server: one writes, the other is refused, and both doctors say so."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.dev.local_control_plane import Cluster
from cli.doctor.all_checks import examine
from cli.doctor.finding import Finding
from cli.embedded import EmbeddedPostgres
from cli.main import koord
from cli.supervisor.endpoints import Endpoints
from services.gateway.cluster_lease import lease_path
from services.gateway.kube_api.client import KubeApi
from services.gateway.other_system import refuse_managed
from services.gateway.settings import GatewaySettings
from shared.events.cluster import ClusterIdentified
from shared.kube.cluster_identity import ClusterTaken
from shared.log.admin.newest_events import newest
from shared.log.database import Database
from shared.log.reader import Row
from tests.support.gateway_process import System, running

LEASE = "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koordstream"


def listed(rows: list[Row]) -> bool:
    return any(row.type.endswith(".InitialListCompleted.v1") for row in rows)


def lease(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.api.call("GET", LEASE)
    return found


async def log_id(database: str) -> str:
    reading = Database(database)
    try:
        [found] = await newest(reading, "cluster", [ClusterIdentified])
    finally:
        await reading.close()
    assert isinstance(found.record.event, ClusterIdentified)
    return found.record.event.log


async def doctor(database: str, folder: Path) -> list[Finding]:
    return [one for one in await examine(Endpoints(database, ""), folder) if one.area == "cluster"]


def folder_in(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


async def test_a_second_system_that_would_write_to_the_cluster_is_refused_and_both_doctors_name_the_other(
    kubeconfig: Path, database: str, postgres: EmbeddedPostgres, template: str, tmp_path: Path, cluster: Cluster
) -> None:
    other = await postgres.create_database("second_system", template)
    async with running(kubeconfig, database, folder_in(tmp_path, "first")) as first:
        await first.until(listed)
        held = lease(cluster)["spec"]["holderIdentity"]
        assert held.startswith(await log_id(database) + "/")
        async with running(kubeconfig, other, folder_in(tmp_path, "second")) as second:
            await second.gateway.ended()
            assert second.gateway.exit_code == 1
            text = second.gateway.log.read_text()
            assert "is managed by another live system" in text
            assert held.partition("/")[2] in text
            assert "KOORD_GATEWAY_SHADOW" in text
            assert not any(row.type.endswith("Observed.v1") for row in await second.rows())
            [refused] = [one for one in await doctor(other, tmp_path) if one.severity == "error"]
            assert f"another live one manages the cluster, log {held.partition('/')[0]}" in refused.what
        await first.until(lambda rows: any(row.type.endswith(".SecondSystemRefused.v1") for row in rows))
        assert first.gateway.running
        [warning] = [one for one in await doctor(database, tmp_path) if one.severity == "warning"]
        assert "another system was refused" in warning.what
        assert await log_id(other) in warning.what
        assert "koordstream/refused" not in lease(cluster)["metadata"].get("annotations", {})
    assert first.gateway.exit_code == 0
    async with running(kubeconfig, other, folder_in(tmp_path, "third")) as third:  # the first has ended and released it
        await third.until(listed)
        assert not [one for one in await doctor(other, tmp_path) if one.severity == "error"]
    await postgres.drop_database("second_system")


async def test_uninstall_from_another_folder_is_refused_while_a_system_renews_its_lease(
    kubeconfig: Path, database: str, tmp_path: Path, cluster: Cluster
) -> None:
    """It removed objects first, and noticed afterwards that they were written again."""
    async with running(kubeconfig, database, folder_in(tmp_path, "first"), {"KOORD_GATEWAY_LEASE_S": "3"}) as first:
        await first.until(listed)
        uid = lease(cluster)["metadata"]["uid"]
        arguments = [
            "uninstall",
            "--kubeconfig",
            str(cluster.kubeconfig()),
            "--dir",
            str(folder_in(tmp_path, "second")),
        ]
        dry = await asyncio.to_thread(CliRunner().invoke, koord, arguments)
        log = await log_id(database)
        assert (dry.exit_code, f"the system with log {log}," in dry.stderr) == (0, True)
        refused = await asyncio.to_thread(CliRunner().invoke, koord, [*arguments, "--yes"])
        assert refused.exit_code == 1
        assert f"the system with log {log}," in refused.stderr
        assert "runs, since it renews the Lease koordinator-system/koordstream: end it" in refused.stderr
        assert lease(cluster)["metadata"]["uid"] == uid


async def test_a_system_in_shadow_mode_runs_beside_another(
    kubeconfig: Path, database: str, postgres: EmbeddedPostgres, template: str, tmp_path: Path, cluster: Cluster
) -> None:
    other = await postgres.create_database("beside_system", template)
    async with running(kubeconfig, database, folder_in(tmp_path, "first")) as first:
        await first.until(listed)
        held = lease(cluster)["spec"]["holderIdentity"]
        env = {"KOORD_GATEWAY_SHADOW": "true"}
        async with running(kubeconfig, other, folder_in(tmp_path, "second"), env) as second:
            await second.until(listed)
            assert lease(cluster)["spec"]["holderIdentity"] == held
    await postgres.drop_database("beside_system")


async def test_a_system_that_was_killed_is_followed_once_its_lease_has_expired(
    kubeconfig: Path, database: str, postgres: EmbeddedPostgres, template: str, tmp_path: Path, cluster: Cluster
) -> None:
    other = await postgres.create_database("next_system", template)
    short = {"KOORD_GATEWAY_LEASE_S": "2"}
    async with running(kubeconfig, database, folder_in(tmp_path, "first"), short) as first:
        await first.until(listed)
        await asyncio.to_thread(first.gateway.kill)
        async with running(kubeconfig, other, folder_in(tmp_path, "second")) as second:
            await second.until(listed)
            assert lease(cluster)["spec"]["holderIdentity"].startswith(await log_id(other))
            await asyncio.to_thread(first.gateway.start)
            await first.gateway.ended()
            assert "is managed by another live system" in first.gateway.log.read_text()
            await until_stays(second)
    await postgres.drop_database("next_system")


@pytest.mark.parametrize(
    ("holder", "age_s", "is_refused"),
    [("log-1/replica-1", 5, True), ("log-1/replica-1", 40, False), ("log-1/replica-1", -40, False), ("", 5, False)],
)
async def test_a_system_without_a_log_is_refused_by_a_lease_that_was_renewed(
    cluster: Cluster, holder: str, age_s: int, is_refused: bool
) -> None:
    """One that was not renewed for its 30 s, or is from a clock that is far ahead, proves nothing."""
    namespace, now_ns = "leases-of-others", time.time_ns()
    settings = GatewaySettings(webhook_namespace=namespace)
    renewed = datetime.fromtimestamp(now_ns / 1e9 - age_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 30, "renewTime": renewed}
    if not any(one["metadata"]["name"] == namespace for one in cluster.api.call("GET", "/api/v1/namespaces")["items"]):
        cluster.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    async with KubeApi(str(cluster.kubeconfig()), read_only=True) as api:
        await refuse_managed(api, settings, lambda: now_ns)  # there is none
        path = lease_path(namespace)
        cluster.api.call("POST", path.rpartition("/")[0], {"metadata": {"name": path.rpartition("/")[2]}, "spec": spec})
        try:
            if is_refused:
                with pytest.raises(ClusterTaken, match=f"the cluster at {cluster.url} .*: log log-1, replica-1"):
                    await refuse_managed(api, settings, lambda: now_ns)
            else:
                await refuse_managed(api, settings, lambda: now_ns)
        finally:
            cluster.api.call("DELETE", path)


async def until_stays(system: System) -> None:
    """Waits until the holder has recorded the refusal; it goes on."""
    await system.until(lambda rows: any(row.type.endswith(".SecondSystemRefused.v1") for row in rows))
    assert system.gateway.running
