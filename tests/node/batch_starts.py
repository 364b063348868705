"""Batch pods whose containers print their values first, and what became of each while the agent was killed."""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from tests.node.first_values import Start, body, removed, starts_of
from tests.node.hooked_containers import kill_at_intervals, records_of
from tests.node.koordstream_on_node import Site
from tests.node.latency_experiment import COLOCATED
from tests.node.pod_bodies import pod
from tests.support.kube_system import beside

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
MIB = 2**20
SHARES = 51
RIGHT = {
    "cpu.shares": str(SHARES),
    "cpu.cfs_quota_us": "5000",
    "memory.limit_in_bytes": str(32 * MIB),
    "oom_score_adj": "990",
}
"""Values of a container of `batch_body`."""
AMOUNTS = {BATCH_CPU: "250", BATCH_MEMORY: "32Mi"}
STATIC = pod(
    "fixed", requests=AMOUNTS, limits=AMOUNTS, labels={"koordinator.sh/qosClass": "BE"}, priorityClassName="koord-batch"
)
"""A pod that the kubelet runs from a file, under a uid that is a hash. The webhook would refuse the API's image of one
without a class of priority, and the agent learns of the pod from that image.
"""


class RecordedStart(NamedTuple):
    """One start of a container.

    Attributes:
        began_right: its program found all values at its first instruction.
        state, route, after_ms: of its record.
    """

    began_right: bool
    state: str
    route: str
    after_ms: int


def batch_body(name: str, count: int, **more: Any) -> dict[str, Any]:
    """Returns a batch pod of so many containers that print their values first."""
    made = body(name, count, {"cpu": "50m", "memory": "32Mi"}, labels=COLOCATED, **more)
    made["metadata"]["annotations"] = {"koordinator.sh/oom-score-adj": "990"}
    return made


def is_right(start: Start) -> bool:
    return {name: start.values[name] for name in RIGHT} == RIGHT


async def starts_beside_kills(
    there: Site, namespace: str, name: str, *, turns: int, kill_interval_s: float
) -> list[RecordedStart]:
    """Starts ten containers a turn while the agent is killed; returns them once each has all its values.

    One pod of a turn comes through the scheduler; one is created for the node, so that the kubelet may start it before
    the agent knows it.
    """
    found: list[RecordedStart] = []
    async with beside(kill_at_intervals(there, kill_interval_s)):
        for turn in range(turns):
            names = [f"{name}-{turn}-known", f"{name}-{turn}-direct"]
            bodies = [
                batch_body(names[0], 5, stays=True),
                batch_body(names[1], 5, stays=True, nodeName=there.node.name),
            ]
            await asyncio.gather(*(there.created(namespace, each) for each in bodies))
            pods = await asyncio.gather(*(there.running(namespace, each) for each in names))
            for each in pods:
                starts = await starts_of(there.node, each)
                records = await records_of(there, starts, ("applied", "repaired"))
                cgroup = there.node.tree.of_pod(each["metadata"]["uid"], "cpu")
                assert cgroup is not None
                for start in starts:
                    assert int((cgroup / start.container / "cpu.shares").read_text()) == SHARES
                    one = records[start.container]
                    found.append(
                        RecordedStart(is_right(start), one["state"], one.get("route", ""), one.get("after_ms", 0))
                    )
            await removed(there, namespace, names)
    counts = Counter((each.state, each.route) for each in found)
    print(f"{len(found)} starts: {dict(counts)}; longest repair {max(each.after_ms for each in found)} ms")
    return found
