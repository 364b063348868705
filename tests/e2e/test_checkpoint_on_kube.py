"""A checkpoint outside the database: from the audit service's log through the gateway into a ConfigMap that proves the
log.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster
from cli.main import koord
from services.audit.checkpoint_signing import generate, public_file
from tests.support.kube_system import running
from tests.support.waiting import in_thread, until

pytestmark = pytest.mark.kube

PATH = "/api/v1/namespaces/koordinator-system/configmaps/koordstream-checkpoint"


async def newest(cluster: Cluster, other_than: str = "") -> str:
    """Waits for a new checkpoint in the ConfigMap. Returns it."""

    def text() -> str:
        with contextlib.suppress(ApiRefused):  # it is not there yet
            return str(cluster.api.call("GET", PATH)["data"]["checkpoint.json"])
        return ""

    return await until(in_thread(text), "checkpoint", holds=lambda found: found not in {"", other_than})


async def test_the_config_map_proves_the_log(kube_cluster: Cluster, tmp_path: Path) -> None:
    key = tmp_path / "audit.key"
    generate(key)
    env = {"audit": {"KOORD_AUDIT_KEY": str(key), "KOORD_AUDIT_CHECKPOINT_INTERVAL_S": "1"}}
    async with running(kube_cluster, tmp_path / "system", env, more=("audit",)) as system:
        first = await newest(kube_cluster)
        while "\\ncluster " not in first:  # signed before the other contexts had their first events
            first = await newest(kube_cluster, other_than=first)
        second = await newest(kube_cluster, other_than=first)
        servers = {"KOORD_POSTGRES": system.endpoints.postgres, "KOORD_NATS": system.endpoints.nats}
        for text in (first, second):
            file = tmp_path / "kept.json"
            file.write_text(text)
            command = ["audit", "verify", "--checkpoint", str(file), "--key", str(public_file(key))]
            found = await asyncio.to_thread(CliRunner().invoke, koord, command, env=servers)
            assert found.exit_code == 0, found.output
