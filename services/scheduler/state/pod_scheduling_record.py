"""The State's record of one pod: fields by the context that writes them, and the assignment that follows from them."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from services.scheduler.state.packed_pod_observation import NONE, observation, since
from services.scheduler.state.pod_attempts_and_refusals import (
    NO_DECISIONS,
    NO_OUTCOMES,
    Attempt,
    Decisions,
    Hold,
    Outcomes,
    PluginReason,
)
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.kube.instants import BadTime, instant_ns
from shared.kube.pod import Pod
from shared.kube.system_annotations import RESERVATION_ALLOCATED

_encoder = msgspec.msgpack.Encoder()
_FURTHEST_NS = 2**62
"""Bound of an instant, some 146 years from 1970; a later one is read as this one."""


class Assignment(NamedTuple):
    """The node that a pod counts on.

    Attributes:
        assigned_ns: time of its PodScheduled condition, else the time at which the node was first observed or decided.
        initialized_ns: time of its Initialized condition; 0 when that is not True.
        terminating: it is being deleted.
        allocation: CPUs, NUMA zones and devices of the node, as annotations (`ALLOCATION_ANNOTATIONS`):
            those that we decided.
        load_class: the class that estimates its load, where that is not `pod_class`.
        controllers: the owner references of a pod that runs there, packed (`packed_controllers.py`).
    """

    node: str
    pod_class: PodClass
    name: str
    assigned_ns: int
    initialized_ns: int
    terminating: bool = False
    allocation: dict[str, str] | None = None
    load_class: PodClass | None = None
    controllers: bytes = b""


class PodRecord(msgspec.Struct, array_like=True, eq=False):
    """A pod. Each field is written from one context alone, so contexts may arrive in any order.

    There are hundreds of thousands: what most of them lack is in values of their own (`pod_attempts_and_refusals.py`).

    From `cluster`:
        name: `namespace/name`; empty while only our own log has named the pod.
        observed: the newest object, until it is read into the fields below (`SchedulerState.read`).
        node: the node that it runs on.
        observation: the numbers of `packed_pod_observation.py`.
        allocation: its allocation, read from its annotations; its owner may have written it.
        controllers: the owner references of a pod with a node, packed (`packed_controllers.py`).
        load_class: the class that estimates its load, where that is not `pod_class`: on a node, a change of labels and
            annotations alone does not change the estimate.
        outcomes: changes while it waited, and decisions that were not carried out.
    From `scheduling`:
        placed_*: our newest placement.
        attempts: the number of cycles without a node since then.
        nominated: the node on which victims are evicted for it.
        decisions: all else.
    """

    uid: str
    name: str = ""
    node: str = ""
    observation: bytes = NONE
    ended: bool = False
    deleting: bool = False
    allocation: dict[str, str] | None = None
    controllers: bytes = b""
    outcomes: Outcomes | None = None
    placed_node: str = ""
    placed_seq: int = 0
    placed_ns: int = 0
    attempts: int = 0
    nominated: str = ""
    decisions: Decisions | None = None
    load_class: PodClass | None = None
    pod_class: PodClass | None = None
    observed: Pod | None = None

    @property
    def since(self) -> int:
        """The `cluster` seq of the first observation; 0 while only our own log has named the pod."""
        return since(self.observation)

    @property
    def started_ns(self) -> int:
        """Its start time; 0 before."""
        return observation(self.observation).started_ns

    @property
    def changed_seq(self) -> int:
        """See `Outcomes`."""
        return 0 if self.outcomes is None else self.outcomes.changed_seq

    @property
    def refused_seq(self) -> int:
        """See `Outcomes`."""
        return 0 if self.outcomes is None else self.outcomes.refused_seq

    @property
    def refusals(self) -> int:
        """See `Outcomes`."""
        return 0 if self.outcomes is None else self.outcomes.refusals

    @property
    def suppressed_seq(self) -> int:
        """See `Outcomes`."""
        return 0 if self.outcomes is None else self.outcomes.suppressed_seq

    @property
    def eviction_refused_seq(self) -> int:
        """See `Outcomes`."""
        return 0 if self.outcomes is None else self.outcomes.eviction_refused_seq

    @property
    def eviction_refused_at(self) -> int:
        """See `Outcomes`."""
        return 0 if self.outcomes is None else self.outcomes.eviction_refused_at

    @property
    def condition_code(self) -> str:
        """See `Decisions`."""
        return "" if self.decisions is None else self.decisions.condition_code

    @property
    def compared(self) -> bool:
        """See `Decisions`."""
        return False if self.decisions is None else self.decisions.compared

    @property
    def eviction_seq(self) -> int:
        """See `Decisions`."""
        return 0 if self.decisions is None else self.decisions.eviction_seq

    @property
    def hold(self) -> Hold | None:
        """The placement without a binding that counts at present; None without one."""
        hold = self.unreleased_hold
        return hold if hold is not None and self.is_placed() else None

    @property
    def unreleased_hold(self) -> Hold | None:
        """The newest placement if it is one without a binding and not released, whether rejected or not."""
        decisions = self.decisions
        if decisions is None or decisions.hold is None or decisions.released_seq >= self.placed_seq:
            return None
        return decisions.hold if decisions.hold.seq == self.placed_seq else None

    @property
    def attempt(self) -> Attempt:
        """The last cycle without a node."""
        return (self.decisions or NO_DECISIONS).attempt

    @property
    def tried_ns(self) -> int:
        """See `Attempt.at_ns`."""
        return (self.decisions or NO_DECISIONS).attempt.at_ns

    @property
    def tried_seq(self) -> int:
        """See `Attempt.seq`."""
        return (self.decisions or NO_DECISIONS).attempt.seq

    @property
    def saw(self) -> int:
        """See `Attempt.saw`."""
        return (self.decisions or NO_DECISIONS).attempt.saw

    @property
    def saw_quota(self) -> int:
        """See `Attempt.saw_quota`."""
        return (self.decisions or NO_DECISIONS).attempt.saw_quota

    @property
    def saw_reports(self) -> dict[str, int]:
        """See `Attempt.saw_reports`."""
        return (self.decisions or NO_DECISIONS).attempt.saw_reports

    @property
    def reasons(self) -> tuple[PluginReason, ...]:
        """See `Attempt.reasons`."""
        return (self.decisions or NO_DECISIONS).attempt.reasons

    def note_outcome(self, **fields: int) -> None:
        """Changes fields of `outcomes`."""
        self.outcomes = replace(self.outcomes or NO_OUTCOMES, **fields)

    def note_decision(self, **fields: Any) -> None:
        """Changes fields of `decisions`."""
        self.decisions = replace(self.decisions or NO_DECISIONS, **fields)

    def assignment(self, *, believes_annotations: bool = False) -> Assignment | None:
        """Where the pod counts now: where it runs, else where we placed it unless that placement was refused.

        Args:
            believes_annotations: the allocation of a pod that runs is the one in its annotations. Else it is the one
                that our newest placement on its node decided, and none for a pod that we did not place: its owner could
                claim CPUs that no other pod would get.
        """
        if self.ended or self.pod_class is None:
            return None
        if self.node:
            seen = observation(self.observation)
            return Assignment(
                self.node,
                self.pod_class,
                self.name,
                seen.scheduled_ns or seen.node_since_ns,
                seen.initialized_ns,
                self.deleting,
                self._allocation(believes_annotations=believes_annotations),
                self.load_class,
                self.controllers,
            )
        if self.placed_seq and self.is_placed():
            allocation = self._taken_over((self.decisions or NO_DECISIONS).placed_allocation)
            return Assignment(self.placed_node, self.pod_class, self.name, self.placed_ns, 0, self.deleting, allocation)
        return None

    def node_or_placement(self) -> str:
        """Returns the node that it runs on, else the one of our newest placement; empty without either."""
        return self.node or (self.placed_node if self.is_placed() else "")

    def is_placed(self) -> bool:
        """Returns True while our newest placement is neither refused nor released; the pod may be observed on its node
        meanwhile.
        """
        decisions, outcomes = self.decisions, self.outcomes
        return (
            self.placed_seq > 0
            and (outcomes is None or self.placed_seq > outcomes.refused_seq)
            and (decisions is None or self.placed_seq > decisions.released_seq)
        )

    def _allocation(self, *, believes_annotations: bool) -> dict[str, str] | None:
        """The allocation where the pod runs. Nobody writes that of a reserve pod into its object: ours counts first."""
        believed = self.allocation if believes_annotations else None
        if believes_annotations and self.pod_class is not None and not self.pod_class.reserves:
            found = believed
        else:
            found = self._decided_allocation() or believed
        return self._taken_over(found)

    def _taken_over(self, allocation: dict[str, str] | None) -> dict[str, str] | None:
        """An allocation with the Reservation that took the pod over, also before it was observed on its node."""
        name = "" if self.decisions is None else self.decisions.pre_allocated
        return {**(allocation or {}), RESERVATION_ALLOCATED: name} if name else allocation

    def _decided_allocation(self) -> dict[str, str] | None:
        if self.decisions is None or self.placed_node != self.node:
            return None
        return self.decisions.placed_allocation

    def is_eviction_requested(self) -> bool:
        """Returns True while an eviction that we requested is neither done nor refused."""
        decisions = self.decisions
        return decisions is not None and decisions.eviction_seq > self.eviction_refused_seq

    def is_terminating(self) -> bool:
        """Returns True when the pod is being deleted or its eviction is requested."""
        return self.deleting or self.is_eviction_requested()

    def waiting(self, gateway_since: int) -> bool:
        """Returns True while the pod has no node, no placement of ours, and nothing that forbids one; its profile is
        not examined.

        Args:
            gateway_since: `cluster` seq at which the gateway last started; bindings suppressed before it may be tried
                again.
        """
        pod_class, outcomes = self.pod_class, self.outcomes
        return (
            pod_class is not None
            and not self.node
            and not self.ended
            and not self.deleting
            and not pod_class.gated
            and not (self.placed_seq and self.is_placed())
            and (outcomes is None or outcomes.suppressed_seq == 0 or outcomes.suppressed_seq < gateway_since)
        )

    def encode(self, pod_classes: Mapping[PodClass, int]) -> tuple[Any, ...]:
        """Returns all fields as plain data; `pod_classes` numbers the classes."""
        return (
            *_plain(self),
            *(None if pod_class is None else pod_classes[pod_class] for pod_class in (self.load_class, self.pod_class)),
        )


_NOT_PLAIN = ("load_class", "pod_class", "observed")
_plain = attrgetter(*(name for name in PodRecord.__struct_fields__ if name not in _NOT_PLAIN))


def decoded(data: msgspec.Raw, pod_classes: Sequence[PodClass]) -> list[PodRecord]:
    """Decodes a list of `PodRecord.encode` results.

    msgspec fills the fields: a loop here would be slow for a million pods.
    """

    def class_of(_: type, number: int) -> PodClass:
        return pod_classes[number]

    return msgspec.msgpack.Decoder(list[PodRecord], dec_hook=class_of).decode(data)


def true_since_ns(pod: Pod) -> tuple[int, int]:
    """Returns the times of the pod's true conditions PodScheduled and Initialized; 0 for another status or an
    unreadable time.
    """
    scheduled = initialized = 0
    for condition in pod.status.conditions:
        if condition.status != "True" or not condition.last_transition_time:
            continue
        if condition.type == "PodScheduled":
            scheduled = _readable_ns(condition.last_transition_time)
        elif condition.type == "Initialized":
            initialized = _readable_ns(condition.last_transition_time)
    return scheduled, initialized


def conditions_checksum(pod: Pod) -> int:
    """Returns a checksum by which a change of conditions is detected once the previous object is no longer kept."""
    return crc32(_encoder.encode(pod.status.conditions))


def started_ns(pod: Pod) -> int:
    """Returns the start time of the pod; 0 when it has not started, or its time is unreadable."""
    return _readable_ns(pod.status.start_time) if pod.status.start_time else 0


@lru_cache(maxsize=65_536)
def _readable_ns(text: str) -> int:
    try:
        return min(max(instant_ns(text), -_FURTHEST_NS), _FURTHEST_NS)
    except BadTime:
        return 0
