"""Progress of a demo run: a fold over its log, read while the services work."""

from collections.abc import Mapping
from typing import NamedTuple

from shared.events import Event, RecordedEvent
from shared.events.cluster import NodeMetricObserved, NodeObserved, PodBound, PodObserved
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.quantity import amounts
from shared.log.codec import Codec
from shared.log.reader import LogReader, recorded

FOLDED: Mapping[str, tuple[type[Event], ...]] = {
    "cluster": (NodeObserved, NodeMetricObserved, PodObserved, PodBound),
    "scheduling": (PodPlaced, PodUnschedulable),
}


class Load(NamedTuple):
    """A node's newest report: cpu in use, in percent of its capacity."""

    cpu_percent: float
    at_ns: int


class Progress:
    """A fold over both logs of a run.

    Attributes:
        hot: nodes whose first report, before any pod came, showed more than HOT_PERCENT.
        loads: node -> its newest report.
        created_ns, bound_ns: pod -> when it was first seen, and bound.
        places: pod -> node.
        waiting: pods that no cycle could place yet, with the reason.
    """

    HOT_PERCENT = 40.0

    def __init__(self) -> None:
        self.hot: set[str] = set()
        self.loads: dict[str, Load] = {}
        self.created_ns: dict[str, int] = {}
        self.bound_ns: dict[str, int] = {}
        self.places: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self._folded = dict.fromkeys(FOLDED, 0)
        self._cpu_milli: dict[str, int] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        match record.event:
            case NodeObserved(node=node, object=seen):
                self._cpu_milli[node] = amounts(seen.status.capacity or {}).get("cpu", 0)
            case NodeMetricObserved(node=node, object=report):
                usage = report.status.node_metric and report.status.node_metric.node_usage
                if usage and self._cpu_milli.get(node):
                    percent = amounts(usage.resources or {}).get("cpu", 0) * 100 / self._cpu_milli[node]
                    if node not in self.loads and percent > self.HOT_PERCENT:
                        self.hot.add(node)
                    self.loads[node] = Load(percent, record.at_ns)
            case PodObserved(pod=pod):
                self.created_ns.setdefault(pod, record.at_ns)
            case PodBound(pod=pod, node=node):
                self.bound_ns[pod] = record.at_ns
                self.places[pod] = node
                self.waiting.pop(pod, None)
            case PodUnschedulable(pod=pod, message=message):
                self.waiting[pod] = message

    async def read(self, log: LogReader) -> None:
        """Folds what was appended since the last time."""
        for context, kinds in FOLDED.items():
            codec = Codec(kinds)
            async for row in log.rows(context=context, after=self._folded[context]):
                event = codec.one(row.type, row.data)
                if event is not None:
                    self.apply(recorded(row, event))
                self._folded[context] = row.seq

    @property
    def placing_s(self) -> float:
        """From the first pod that was seen to the last that was bound, in seconds."""
        return (max(self.bound_ns.values()) - min(self.created_ns.values())) / 1e9 if self.bound_ns else 0.0
