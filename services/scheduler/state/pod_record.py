"""One pod as the scheduler's state knows it: facts by context, and what follows from them."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from services.scheduler.state.pod_class import PodClass
from shared.kube.instants import BadTime, instant_ns
from shared.kube.pod import Pod

_encoder = msgspec.msgpack.Encoder()
_FURTHEST_NS = 2**62
"""Some 146 years from 1970: an instant beyond it is taken for one at it."""

PluginReason = tuple[str, str]
"""(plugin, reason code)."""


class Assignment(NamedTuple):
    """Where a pod counts.

    Attributes:
        assigned_ns: since when: the time of its PodScheduled condition, else when the node was first seen or decided.
        initialized_ns: the time of its Initialized condition, 0 when that is not True.
        ending: it is being deleted.
        allocation: what it has of the node besides what it asks for, as annotations (`pod_class.ALLOCATION_ANNOTATIONS`).
        load_class: the class that its load is estimated by, where that is not `pod_class`.
    """

    node: str
    pod_class: PodClass
    name: str
    assigned_ns: int
    initialized_ns: int
    ending: bool = False
    allocation: dict[str, str] | None = None
    load_class: PodClass | None = None


class PodRecord(msgspec.Struct, array_like=True, eq=False):
    """Each field is written from one context alone, so contexts may arrive in any order.

    From `cluster`:
        since: seq of the first observation; 0 while only our own log has spoken of the pod.
        observed: the newest object, until it is read into the fields below (`ClusterView.read`).
        node, node_since_ns: where it runs, and when that was first seen (append time).
        changed_seq: seq of the last change of what it asks for.
        refused_seq: our newest placement (`scheduling` seq) that was answered with anything but PodBound.
        refusals: how many there were.
        suppressed_seq: seq of the last BindSuppressed; the pod waits until the gateway starts anew.
        allocation: what it has of its node, as it says itself.
        started_ns: when it started, 0 before.
        conditions: checksum of its conditions, 0 while it has no node.
        load_class: the class that its load is estimated by, where that is not `pod_class`: on a node, labels and annotations that change alone leave
            the estimate as it was.
        eviction_refused_seq: our newest wish that it goes (`scheduling` seq) that was refused or failed; stayed_at: when (`cluster` seq).
    From `scheduling`:
        placed_*: our newest placement. attempts, tried_ns, tried_seq, saw, reasons: the last cycle that found no node, and what
        refused the nodes there; condition_code: the code last written to the pod. compared: what another scheduler did with it has been
        compared with what we would have done. nominated: the node on which pods were asked to make room for it. asked_seq: our newest
        wish that it goes. saw_quota: the `quota` seq up to which that cycle, or the ledger for it, had read. saw_reports: the same of
        each of `metrics-*`, one dict for all pods of a cycle.
    """

    uid: str
    since: int = 0
    name: str = ""
    node: str = ""
    node_since_ns: int = 0
    ended: bool = False
    deleting: bool = False
    scheduled_ns: int = 0
    initialized_ns: int = 0
    changed_seq: int = 0
    refused_seq: int = 0
    refusals: int = 0
    suppressed_seq: int = 0
    allocation: dict[str, str] | None = None
    started_ns: int = 0
    conditions: int = 0
    eviction_refused_seq: int = 0
    eviction_refused_at: int = 0
    nominated: str = ""
    eviction_seq: int = 0
    placed_node: str = ""
    placed_allocation: dict[str, str] | None = None
    placed_seq: int = 0
    placed_ns: int = 0
    attempts: int = 0
    tried_ns: int = 0
    tried_seq: int = 0
    saw: int = 0
    saw_quota: int = 0
    saw_reports: dict[str, int] = msgspec.field(default_factory=dict)
    reasons: tuple[PluginReason, ...] = ()
    condition_code: str = ""
    compared: bool = False
    load_class: PodClass | None = None
    pod_class: PodClass | None = None
    observed: Pod | None = None

    def assignment(self) -> Assignment | None:
        """Where the pod counts now: where it runs, else where we placed it unless that placement was refused."""
        if self.ended or self.pod_class is None:
            return None
        if self.node:
            at = self.scheduled_ns or self.node_since_ns
            return Assignment(
                self.node,
                self.pod_class,
                self.name,
                at,
                self.initialized_ns,
                self.deleting,
                self.allocation,
                self.load_class,
            )
        if self.placed_seq > self.refused_seq:
            return Assignment(
                self.placed_node, self.pod_class, self.name, self.placed_ns, 0, self.deleting, self.placed_allocation
            )
        return None

    def is_eviction_requested(self) -> bool:
        """Whether an eviction that we asked for is on its way."""
        return self.eviction_seq > self.eviction_refused_seq

    def is_terminating(self) -> bool:
        """Whether it is being deleted, or asked to go."""
        return self.deleting or self.is_eviction_requested()

    def waiting(self, gateway_since: int) -> bool:
        """Whether the pod needs a node from us, whoever's profile it is.

        Args:
            gateway_since: `cluster` seq at which the gateway last started; what was withheld before may be tried again.
        """
        return (
            self.pod_class is not None
            and not self.node
            and not self.ended
            and not self.deleting
            and not self.pod_class.gated
            and self.placed_seq <= self.refused_seq
            and (self.suppressed_seq == 0 or self.suppressed_seq < gateway_since)
        )

    def encode(self, pod_classes: Mapping[PodClass, int]) -> tuple[Any, ...]:
        """All facts as plain data; `pod_classes` numbers the classes."""
        return (
            *_plain(self),
            *(None if pod_class is None else pod_classes[pod_class] for pod_class in (self.load_class, self.pod_class)),
        )


_NOT_PLAIN = ("load_class", "pod_class", "observed")
_plain = attrgetter(*(name for name in PodRecord.__struct_fields__ if name not in _NOT_PLAIN))


def decoded(data: msgspec.Raw, pod_classes: Sequence[PodClass]) -> list[PodRecord]:
    """The inverse of `PodRecord.encode`, of a list: read into the fields without a loop here, for there are many pods."""

    def class_of(_: type, number: int) -> PodClass:
        return pod_classes[number]

    return msgspec.msgpack.Decoder(list[PodRecord], dec_hook=class_of).decode(data)


def true_since_ns(pod: Pod) -> tuple[int, int]:
    """Since when the pod's conditions PodScheduled and Initialized are True; 0 for one that is not, or whose time is unreadable."""
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
    """Equal for equal conditions; by it a change is seen once the object is read."""
    return crc32(_encoder.encode(pod.status.conditions))


def started_ns(pod: Pod) -> int:
    """When the pod started; 0 when it has not, or its time is unreadable."""
    return _readable_ns(pod.status.start_time) if pod.status.start_time else 0


def _readable_ns(text: str) -> int:
    try:
        return min(max(instant_ns(text), -_FURTHEST_NS), _FURTHEST_NS)
    except BadTime:
        return 0
