"""Random small clusters for the properties of load-awareness."""

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

from hypothesis import strategies as st

from services.scheduler.plugins.load_aware_scheduling.load_cache import LoadCache
from shared.kube.instants import SECOND
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod
from tests.unit.scheduler.load_aware_objects import GIB, NOW, assign, expecting, metric, node, reported, usage

ROWS = 3
NAMES = ("p0", "p1", "p2", "p3")
THRESHOLDS = (
    "",
    '{"usageThresholds":{"cpu":30}}',
    '{"prodUsageThresholds":{"cpu":0}}',
    '{"prodUsageThresholds":{"memory":20}}',
    '{"aggregatedUsage":{"usageThresholds":{"cpu":45},"usageAggregationType":"p95"}}',
)
FLAGS = ("prodUsageIncludeSys", "scoreAccordingProdUsage", "filterExpiredNodeMetrics")

Step = Callable[[LoadCache], None]

cpus = st.integers(0, 20_000)
memories = st.integers(0, 40).map(lambda gib: gib * GIB + 7)
usages = st.builds(usage, cpus, memories)
instants = st.integers(-400, 100).map(lambda s: NOW + s * SECOND)
percents = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 100), max_size=2)


class World(NamedTuple):
    """Inputs of a LoadCache: by row, and by pod (its row, the pod, its start)."""

    args: dict[str, Any]
    nodes: list[Node]
    reports: list[NodeMetric | None]
    placed: dict[str, tuple[int, Pod, int]]

    def steps(self) -> list[Step]:
        """The calls that fill a LoadCache, one per object."""
        return [
            *(methodcaller("set_node", row, node) for row, node in enumerate(self.nodes)),
            *(methodcaller("set_metric", row, report) for row, report in enumerate(self.reports)),
            *(partial(assign, pod=pod, at_ns=since, row=row) for row, pod, since in self.placed.values()),
        ]


@st.composite
def pods(draw: st.DrawFn, name: str = "incoming") -> Pod:
    return expecting(draw(cpus), draw(memories), name, priority=draw(st.sampled_from([9500, 5500, 3500, None])))


@st.composite
def reports(draw: st.DrawFn) -> NodeMetric:
    classes = st.sampled_from(["koord-prod", "koord-batch"])
    listed = [
        reported(name, draw(cpus), draw(memories), draw(classes)) for name in draw(st.sets(st.sampled_from(NAMES)))
    ]
    windows = st.dictionaries(st.sampled_from(["5m0s", "15m0s"]), st.fixed_dictionaries({"p95": usages}))
    return metric(
        draw(usages | st.none()),
        *listed,
        at_ns=draw(instants | st.none()),
        system=draw(usages | st.none()),
        windows=draw(windows),
        interval_s=draw(st.sampled_from([None, 10])),
    )


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    kinds, lengths = st.sampled_from(["", "p95", "p50"]), st.sampled_from([None, "0s", "5m0s", "15m0s"])
    windows = {
        "usageThresholds": percents,
        "usageAggregationType": kinds,
        "usageAggregatedDuration": lengths,
        "scoreAggregationType": kinds,
        "scoreAggregatedDuration": lengths,
    }
    return {
        "usageThresholds": draw(percents),
        "prodUsageThresholds": draw(percents),
        "aggregated": draw(st.fixed_dictionaries(windows) | st.none()),
        "dominantResourceWeight": draw(st.sampled_from([0, 0, 1, 7])),
        "estimatedSecondsAfterPodScheduled": draw(st.sampled_from([None, 0, 30, 300])),
        **{name: draw(st.booleans()) for name in FLAGS},
    }


@st.composite
def worlds(draw: st.DrawFn) -> World:
    sizes = st.tuples(st.sampled_from([0, 4000, 16_000]), st.sampled_from([0, 32 * GIB]))
    arrays = [node(*draw(sizes), thresholds=draw(st.sampled_from(THRESHOLDS))) for _ in range(ROWS)]
    measured = [draw(reports() | st.none()) for _ in range(ROWS)]
    placed = {
        name: (draw(st.integers(0, ROWS - 1)), draw(pods(name)), draw(instants))
        for name in draw(st.sets(st.sampled_from(NAMES)))
    }
    return World(draw(arguments()), arrays, measured, placed)
