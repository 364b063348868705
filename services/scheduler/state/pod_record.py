"""The State's record of one pod: fields by the context that writes them, and the assignment that follows from them."""

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
"""Bound of an instant, some 146 years from 1970; a later one is read as this one."""

PluginReason = tuple[str, str]
"""(plugin, reason code)."""


class Assignment(NamedTuple):
    """The node that a pod counts on.

    Attributes:
        assigned_ns: time of its PodScheduled condition, else the time at which the node was first observed or decided.
        initialized_ns: time of its Initialized condition; 0 when that is not True.
        terminating: it is being deleted.
        allocation: CPUs, NUMA zones and devices of the node, as annotations (`pod_class.ALLOCATION_ANNOTATIONS`).
        load_class: the class that estimates its load, where that is not `pod_class`.
    """

    node: str
    pod_class: PodClass
    name: str
    assigned_ns: int
    initialized_ns: int
    terminating: bool = False
    allocation: dict[str, str] | None = None
    load_class: PodClass | None = None


class PodRecord(msgspec.Struct, array_like=True, eq=False):
    """A pod. Each field is written from one context alone, so contexts may arrive in any order.

    From `cluster`:
        since: seq of the first observation; 0 while only our own log has named the pod.
        observed: the newest object, until it is read into the fields below (`ClusterView.read`).
        node, node_since_ns: the node that it runs on, and the append time of the first observation there.
        changed_seq: seq of the last change of its class while it had no node.
        refused_seq: `scheduling` seq of our newest placement with another outcome than PodBound.
        refusals: the number of such placements.
        suppressed_seq: seq of the last BindSuppressed; the pod waits until the gateway starts anew.
        allocation: its allocation, read from its annotations.
        started_ns: start time, 0 before.
        conditions: checksum of its conditions, 0 while it has no node.
        load_class: the class that estimates its load, where that is not `pod_class`: on a node, a change of labels and
            annotations alone does not change the estimate.
        eviction_refused_seq: `scheduling` seq of our newest eviction request that was refused or failed;
            eviction_refused_at: the `cluster` seq of that outcome.
    From `scheduling`:
        placed_*: our newest placement.
        attempts, tried_ns, tried_seq, saw, reasons: the number of cycles without a node, and the time, seq, `cluster`
            position and reasons of the last one.
        saw_quota: the `quota` seq up to which that cycle, or the ledger for it, had read.
        saw_reports: the same for each of `metrics-*`; one dict for all pods of a cycle.
        condition_code: the code last written to the pod's condition.
        compared: the placement by another scheduler has been compared with our own.
        nominated: the node on which victims are evicted for it.
        eviction_seq: seq of our newest eviction request for it.
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
        """Returns True while an eviction that we requested is neither done nor refused."""
        return self.eviction_seq > self.eviction_refused_seq

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


def _readable_ns(text: str) -> int:
    try:
        return min(max(instant_ns(text), -_FURTHEST_NS), _FURTHEST_NS)
    except BadTime:
        return 0
