"""Experiment: response time of a service while batch containers start beside it that would use all of the node's cpu.

With NRI they have their quota from their first instant; with the reconciler alone they run without one until it comes.
"""

import asyncio
from contextlib import nullcontext
from typing import Any, NamedTuple

from tests.node.first_values import body, removed, starts_of
from tests.node.hooked_containers import connections, records_of, without_nri
from tests.node.latency_experiment import COLOCATED, Pace, Service
from tests.support.waiting import until

PODS, CONTAINERS, CORES = 4, 3, 2
"""Of a burst: 12 containers with two busy threads each."""
CPU_MILLI = 20
"""Limit of each container: bounded, the burst uses a quarter of a core."""
QUOTA_US = 100 * CPU_MILLI
BURST = Pace(length_s=12, every_ms=100)
"""The time in which all containers start, and run without NRI until the reconciler has seen them."""
STARTS_AFTER_S = 2.0


class Burst(NamedTuple):
    """One burst.

    Attributes:
        quiet, beside: latencies of the service alone, and while the containers start.
        right: containers whose program found its values at its first instruction.
        started: all of them.
        slowest_ms: the longest time for which a container ran without its values.
    """

    quiet: dict[str, int]
    beside: dict[str, int]
    right: int
    started: int
    slowest_ms: int

    @property
    def ratio(self) -> float:
        """P99 beside the burst, in terms of the quiet one."""
        return self.beside["p99_us"] / self.quiet["p99_us"]


async def burst(service: Service, turn: int, *, nri: bool, pace: Pace = BURST) -> Burst:
    """Measures one burst.

    Args:
        nri: otherwise the agent runs with the reconciler alone meanwhile.
    """
    before = connections(service.there)
    async with nullcontext() if nri else without_nri(service.there):
        await asyncio.sleep(pace.settles_s if nri else 3 * pace.settles_s)  # the agent has started again
        quiet = await service.latency(pace)
        beside, names = await asyncio.gather(service.latency(pace), _start(service, f"burst-{turn}-{int(nri)}"))
        found = await _starts(service, names)
        await removed(service.there, service.namespace, names)
    if not nri:
        await until(lambda: connections(service.there) > before, "connection of the next agent to the runtime")
    return Burst(quiet, beside, *found)


async def _start(service: Service, name: str) -> list[str]:
    """Creates the pods of a burst at once, a moment after the measurement has begun; returns their names."""
    await asyncio.sleep(STARTS_AFTER_S)
    names = [f"{name}-{number}" for number in range(PODS)]
    await asyncio.gather(*(service.there.created(service.namespace, _body(service, each)) for each in names))
    return names


def _body(service: Service, name: str) -> dict[str, Any]:
    amounts = {"cpu": f"{CPU_MILLI}m", "memory": "32Mi"}
    made = body(name, CONTAINERS, amounts, labels=COLOCATED, nodeName=service.there.node.name)
    for container in made["spec"]["containers"]:
        container["args"] = ["-limits", f"-burn={CORES}"]
    return made


async def _starts(service: Service, names: list[str]) -> tuple[int, int, int]:
    there = service.there
    pods = await asyncio.gather(*(there.running(service.namespace, each) for each in names))
    starts = [start for each in pods for start in await starts_of(there.node, each)]
    records = await records_of(there, starts, ("applied", "repaired"))
    slowest_ms = max(each.get("after_ms") or 0 for each in records.values())
    right = sum(start.values["cpu.cfs_quota_us"] == str(QUOTA_US) for start in starts)
    return right, len(starts), slowest_ms
