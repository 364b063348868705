"""Pods of nearly a mebibyte of one tenant beside the small pods of another, on a real API server."""

import asyncio
import logging
import time
from pathlib import Path

import pytest

from cli.dev.local_control_plane import Cluster
from tests.cluster.fixtures import MakeNodes
from tests.e2e.stage import Stage, pod
from tests.support.kube_system import beside, running

log = logging.getLogger(__name__)

LARGE = 200
NOTE = {"koordinator.sh/note": "x" * 250_000}
"""Annotations have 256 KiB at most; the rest of the pod is not kept in the log."""

ENV = [{"name": f"TEXT_{number}", "value": "y" * 100_000} for number in range(7)]


@pytest.mark.soak
async def test_large_pods_of_one_tenant_do_not_hold_up_those_of_another(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    nodes = kube_nodes(
        *(f"large-{number}" for number in range(4)), capacity={"cpu": "64", "memory": "256Gi", "pods": "500"}
    )
    stage = Stage(kube_cluster, namespace, kube_nodes)
    created: list[str] = []

    async def flood() -> None:
        for number in range(LARGE):
            body = pod(f"flood-{number}", "1m", annotations=NOTE)
            body["spec"]["containers"][0]["env"] = ENV
            await stage.create(body)
            created.append(body["metadata"]["name"])

    async def small(name: str) -> float:
        began = time.perf_counter()
        await stage.create(pod(name, "1m"))
        assert await stage.placed(name) in nodes
        return time.perf_counter() - began

    async with running(kube_cluster, tmp_path / "system") as system:
        alone = [await small(f"alone-{number}") for number in range(20)]
        async with beside(flood()):
            together: list[float] = []
            while len(created) < LARGE:
                together.append(await small(f"beside-{len(together)}"))
        for name in created:
            await stage.placed(name)
        order = [(row.type.rsplit(".", 2)[-2], row.key) async for row in system.log.rows(context="cluster")]
    log.warning("alone %s s, beside %s s", sorted(alone), sorted(together))
    for number in range(len(together)):
        key = f"{namespace}/beside-{number}"
        seen, bound = order.index(("PodObserved", key)), order.index(("PodBound", key))
        between = {name for _, name in order[seen:bound] if "/flood-" in name}
        assert len(between) < LARGE // 4
    await asyncio.gather(*(stage.remove(name) for name in created))
