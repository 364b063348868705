"""The scheduler's State: a fold over `cluster`, `quota`, `metrics-*` and its own `scheduling`.

The fold only records what each context states. Arrays over nodes, the queue and the plugin caches are functions of the
State, in `cache/` and `cycle/cycle_inputs.py`, brought up to date when a decision needs them. So `apply`
takes less than two microseconds, and a history in which a pod changes five times is read into the arrays once.

Source: architecture.md, "The core of a service".
"""

from typing import ClassVar, Final

from services.scheduler.state.encode_and_restore_state import encode, restore
from services.scheduler.state.fold_cluster import ClusterFold
from services.scheduler.state.fold_scheduling import SchedulingFold
from services.scheduler.state.quota_view import FOLDED as QUOTA_FOLDED
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    BindSuppressed,
    DesiredStateRejected,
    EvictionFailed,
    EvictionRejected,
    InitialListCompleted,
    MissingPermission,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.events.scheduling import (
    CycleDecided,
    GangPlaced,
    PlacementCompared,
    PlacementReleased,
    PlacementReserved,
    PodNominated,
    PodPlaced,
    PodUnschedulable,
    ReservationUnschedulable,
    UnitStartPlanned,
)

FOLDED: Final[dict[str, tuple[type[Event], ...]]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodDeleted, NodeMetricObserved, NodeMetricDeleted, ObjectObserved,
        ObjectDeleted, BindRejected, BindFailed, BindSuppressed, DesiredStateRejected, MissingPermission, EvictionRejected, EvictionFailed, PodEvicted, WriterStarted, InitialListCompleted,
    ),
    "scheduling": (
        WriterStarted, CycleDecided, GangPlaced, PodPlaced, PodUnschedulable, FieldsDesired, PodNominated, EvictionRequested,
        PlacementReserved, PlacementReleased, ReservationUnschedulable, UnitStartPlanned, PlacementCompared, ConfigApplied, ConfigRejected,
    ),
    "quota": QUOTA_FOLDED,
    "metrics-*": (NodeReported, NodeReportsExpired),
}  # fmt: skip
"""Context -> event types that are folded; all others are ignored."""


_FOLDS = {**ClusterFold.folds, **SchedulingFold.folds}


class SchedulerState(ClusterFold, SchedulingFold):
    """The State of the cluster and of the scheduler's own decisions; `SchedulerStateFields` describes its fields."""

    SCHEMA: ClassVar[int] = 36

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event. Types that are not in FOLDED advance the position only."""
        event = record.event
        fold = _FOLDS.get(type(event))
        if record.context == "quota":
            self.quota.apply(record)
        elif fold is not None:
            fold(self, record, event)
        self.positions[record.context] = record.seq

    def history_begins(self, context: str, seq: int) -> None:
        """Notes where `cluster` begins: a pod that was carried forward has the seq of its newest observation there; one
        that our own log names and that is not carried forward has been deleted.
        """
        if context != "cluster":
            return
        self.cluster_begins = seq
        for uid in [uid for uid, saw in self.awaited.items() if saw <= seq]:
            del self.awaited[uid], self.pods[uid]
            if self.dirty is not None:
                self.dirty.pods[uid] = None

    def encode(self) -> bytes:
        """Returns the whole State in one canonical form."""
        return encode(self)

    def restore(self, data: bytes) -> None:
        """Restores the State from the bytes of `encode`."""
        restore(self, data)
