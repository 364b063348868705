"""A checkpoint leaves the database: from the audit service's log through the gateway into a ConfigMap, which proves the log."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.dev.api import ApiRefused
from cli.dev.cluster import Cluster
from cli.main import koord
from services.audit.signing import generate, public_file
from tests.e2e.system import running

pytestmark = pytest.mark.kube

PATH = "/api/v1/namespaces/koordinator-system/configmaps/koordstream-checkpoint"
DEADLINE_S = 60


async def newest(cluster: Cluster, other_than: str = "") -> str:
    """The checkpoint in the ConfigMap, once there is another one."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(ApiRefused):  # it is not there yet
                found = await asyncio.to_thread(cluster.api.call, "GET", PATH)
                if (text := str(found["data"]["checkpoint.json"])) != other_than:
                    return text
            await asyncio.sleep(0.2)


async def test_the_config_map_proves_the_log(kube_cluster: Cluster, tmp_path: Path) -> None:
    key = tmp_path / "audit.key"
    generate(key)
    env = {"audit": {"KOORD_AUDIT_KEY": str(key), "KOORD_AUDIT_CHECKPOINT_EVERY_S": "1"}}
    async with running(kube_cluster, tmp_path / "system", env, more=("audit",)) as system:
        first = await newest(kube_cluster)
        while "\\ncluster " not in first:  # signed before the others' first events were heard of
            first = await newest(kube_cluster, other_than=first)
        second = await newest(kube_cluster, other_than=first)
        servers = {"KOORD_POSTGRES": system.endpoints.postgres, "KOORD_NATS": system.endpoints.nats}
        for text in (first, second):
            file = tmp_path / "kept.json"
            file.write_text(text)
            command = ["audit", "verify", "--checkpoint", str(file), "--key", str(public_file(key))]
            found = await asyncio.to_thread(CliRunner().invoke, koord, command, env=servers)
            assert found.exit_code == 0, found.output
