"""A noisy best-effort neighbour on a real node is found, and nothing is found while it is quiet."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.dev.node.kubelet_node import RealNode
from cli.node.agent_actions import actions_of
from shared.domain.interference import INTERFERED
from shared.events.nodes import PodInterfered, PodInterferenceEnded
from shared.kube.instants import SECOND
from tests.node.koordstream_on_node import Site, site
from tests.node.latency_experiment import COLOCATED, Pace, Service, service_in
from tests.support.waiting import until

EXAMPLES = Path(__file__).parents[2] / "k8s" / "examples"
SPACE = "neighbours"
STRATEGY: dict[str, Any] = {
    "enable": True,
    "learnSeconds": 60,
    "sustainSeconds": 10,
    "recoverySeconds": 6,
    "answer": "hint",
}
RUNS, FOUND_WITHIN_S, QUIET_S = 10, 30, 30
LEAST_FOUND = 9


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_noisy_neighbour_is_found_within_30_s_in_9_of_10_runs_and_nothing_in_10_quiet_ones(
    real_node: RealNode, tmp_path: Path
) -> None:
    """Each run is half a minute without neighbours, then two batch pods that burn all cpu."""
    real_node.cluster.create_namespace(SPACE, COLOCATED)
    real_node.cluster.apply(EXAMPLES / "webhooks" / "colocation-profile.yaml")
    async with site(real_node, tmp_path, interference_config={"clusterStrategy": STRATEGY}) as there:
        service = await service_in(there, SPACE)
        async with requests(service):
            await asyncio.sleep(STRATEGY["learnSeconds"] + QUIET_S)
            quiet, found = [], list[float | None]()
            for _ in range(RUNS):
                since_ns = time.time_ns()
                await asyncio.sleep(QUIET_S)
                quiet.append(len(await marks(there, since_ns)))
                await service.burn(2)
                found.append(await found_after_s(there, time.time_ns()))
                if found[-1] is not None:
                    await until(lambda: labelled(there), "label of the node", holds=bool)
                await service.burn(0)
                await until(lambda: ended(there), "end of the mark")
                await until(lambda: labelled(there), "no label", holds=lambda there: not there)
    print(quiet, found, os.getloadavg())
    assert quiet == [0] * RUNS, found
    assert sum(each is not None for each in found) >= LEAST_FOUND, found


async def labelled(there: Site) -> bool:
    """Reports whether the node has the label that the answer `hint` is."""
    node = await there.call("GET", f"/api/v1/nodes/{there.node.name}")
    return bool(node["metadata"]["labels"].get(INTERFERED) == "true")


@asynccontextmanager
async def requests(service: Service) -> AsyncIterator[None]:
    """Has the service answer requests meanwhile, 20 a second."""

    async def send() -> None:
        while True:
            await service.latency(Pace(20, every_ms=50, rounds=300))

    sending = asyncio.create_task(send())
    try:
        yield
    finally:
        sending.cancel()
        await asyncio.wait([sending])


async def marks(there: Site, since_ns: int) -> list[PodInterfered]:
    """Returns the marks of the service since an instant."""
    records = await actions_of(there.system.log, there.node.name)
    events = [each.event for each in records if each.at_ns >= since_ns]
    return [each for each in events if isinstance(each, PodInterfered)]


async def found_after_s(there: Site, since_ns: int) -> float | None:
    """Returns seconds until the service is marked, with a burner as its first suspect; None: not in time."""
    while time.time_ns() - since_ns <= FOUND_WITHIN_S * SECOND:
        if found := await marks(there, since_ns):
            print(found[0])
            assert found[0].pod == f"{SPACE}/web"
            assert found[0].suspects[0].pod.startswith(f"{SPACE}/burner-")
            return (time.time_ns() - since_ns) / SECOND
        await asyncio.sleep(0.5)
    return None


async def ended(there: Site) -> bool | None:
    """Reports whether no pod is marked; None while one is."""
    records = await actions_of(there.system.log, there.node.name)
    kinds = [type(each.event) for each in records if isinstance(each.event, PodInterfered | PodInterferenceEnded)]
    return True if not kinds or kinds[-1] is PodInterferenceEnded else None
