"""The pods without a node: what each waits for, and its place in the queue.

A function of the State, of the rules in force and of an instant, for commands that read the log: no plugin and no array
is made. It follows the queue (`queue/scheduling_queue.py`), with two simplifications: it does not examine whether an
event since the last attempt can end a pod's reasons, nor whether the eviction of a victim was refused.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from services.scheduler.explain.waiting_order_config import QueueRules
from services.scheduler.framework.gang_grouping_interface import ALONE, Membership
from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.coscheduling.gang_placement_units import GangGrouping
from services.scheduler.queue.active_queue import FRESH, REFUSED_BEFORE, REQUEUED
from services.scheduler.queue.quota_gate import QuotaGate
from services.scheduler.queue.retries import FLUSH_S, backoff_ends_ns, has_changed
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from shared.kube.instants import SECOND, instant_text
from shared.kube.pod import Pod

QUEUED = frozenset(("InQueue", "NoScheduler", "BackingOff", "AwaitsChange"))
"""Codes of pods that have a place in the queue."""


SCHEDULING = "scheduling"
"""The log of a scheduler, which begins with its first start."""


class WaitingPod(NamedTuple):
    """A pod without a node, or a Reservation without one.

    Attributes:
        state: code of the reason for which it is not tried at present, or `InQueue`; `NoScheduler` where no scheduler
            has written to the log yet; with the reason's detail.
        next_ns: when it is tried again at the latest; 0 where no time is set.
        place: from 1, of its unit in the order in which pods are tried; 0 for a pod that is not in the queue. A pod in
            backoff, or one that awaits a change, has its place in that order and is passed over until then.
        quota: the one that counts it; empty without one. gang: the id of its gang; empty without one.
    """

    record: PodRecord
    pod_class: PodClass
    state: Reason
    next_ns: int
    place: int
    quota: str
    gang: str


def not_queued(view: SchedulerState, schedulers: Mapping[str, object], pod_record: PodRecord) -> Reason | None:
    """Returns the reason why a pod without a node is not in the queue, by its own record; None for one that may be."""
    pod_class = pod_record.pod_class
    if pod_record.deleting:
        return Reason("Deleting")
    if pod_class is not None and pod_class.gated:
        return Reason("SchedulingGated", ", ".join(gates_of(pod_class.pod)))
    if pod_class is not None and pod_class.scheduler not in schedulers:
        return Reason("OtherScheduler", pod_class.scheduler)
    if (hold := pod_record.hold) is not None:
        return Reason("PlacementHeld", f"{pod_record.placed_node}, {hold.waits_for}")
    if pod_record.is_placed():
        return Reason("BindingUnderWay", pod_record.placed_node)
    if pod_record.suppressed_seq and pod_record.suppressed_seq >= view.gateway_since:
        return Reason("BindingSuppressed")
    return None


def gates_of(pod: Pod) -> list[str]:
    """Returns the names of a pod's scheduling gates."""
    return [gate.name for gate in pod.spec.scheduling_gates]


def waiting_pods(view: SchedulerState, rules: QueueRules, now_ns: int) -> list[WaitingPod]:
    """Returns all pods and Reservations without a node, in the order of the queue, those without a place last."""
    view.read()
    return _Queue(view, rules, now_ns).pods()


def _instant(at_ns: int) -> str:
    """Returns an instant as texts have it, rounded down to the second."""
    return instant_text(at_ns // SECOND * SECOND)


class _Queue:
    """The waiting pods of one State."""

    def __init__(self, view: SchedulerState, rules: QueueRules, now_ns: int) -> None:
        self._view = view
        self._rules = rules
        self._now_ns = now_ns
        self._gate = QuotaGate(view.quota)
        self._groupings = {
            name: GangGrouping.counted(view, args, view.gangs.gangs)
            for name, args in rules.schedulers.items()
            if args is not None
        }
        self._queued = {name: args for name, args in rules.schedulers.items() if name != rules.shadowed}

    def pods(self) -> list[WaitingPod]:
        """Returns them in order."""
        there = [
            (record, record.pod_class, self._membership(record))
            for record in self._view.pods.values()
            if record.pod_class is not None and record.since and not (record.node or record.ended or record.deleting)
        ]
        for record, _, membership in there:
            is_kept_out = membership.held_back is not None or not_queued(self._view, self._queued, record) is not None
            self._gate.place(record.uid, None if is_kept_out else record, 0, in_group=bool(membership.group))
        self._gate.changed()
        in_states = [(*each, *self._state(each[0], each[2])) for each in there]
        refused = {
            pod_class for record, pod_class, _, state, _ in in_states if state.code in QUEUED and record.attempts
        }
        ordered = sorted(in_states, key=lambda each: self._order(each[0], each[1], each[3], refused))
        return list(self._placed(ordered))

    def _placed(self, ordered: list[tuple[PodRecord, PodClass, Membership, Reason, int]]) -> Iterator[WaitingPod]:
        """Numbers the units; a group has the place of its first pod."""
        places: dict[tuple[str, str], int] = {}
        for record, pod_class, membership, state, next_ns in ordered:
            place = 0
            if state.code in QUEUED:
                unit = (pod_class.scheduler, membership.group) if membership.group else ("", record.uid)
                place = places.setdefault(unit, len(places) + 1)
            entry = self._view.quota.entry_of(record.uid, pod_class.namespace, pod_class.labels, pod_class.request)
            gang = self._view.gangs.gang_of.get(record.uid, "")
            yield WaitingPod(record, pod_class, state, next_ns, place, entry.quota if entry else "", gang)

    def _membership(self, record: PodRecord) -> Membership:
        assert record.pod_class is not None, "chosen because it has one"
        grouping = self._groupings.get(record.pod_class.scheduler)
        waits = record.waiting(self._view.gateway_since)
        return grouping.of(record) if grouping is not None and waits else ALONE

    def _state(self, record: PodRecord, membership: Membership) -> tuple[Reason, int]:
        if (reason := not_queued(self._view, self._queued, record)) is not None:
            return reason, 0
        if membership.held_back is not None:
            return membership.held_back, 0
        queued, tried_after = self._gate.place(record.uid, record, 0, in_group=bool(membership.group))
        if queued is None:
            return Reason("AwaitsQuota"), 0
        changed_at = max(tried_after, membership.changed_seq)
        is_due = has_changed(record, self._view.config_seq) or changed_at > record.saw
        until_ns = backoff_ends_ns(record.attempts, record.tried_ns, record.refusals, record.placed_ns)
        if until_ns > self._now_ns:
            return Reason("BackingOff", _instant(until_ns)), until_ns
        flush_ns = record.tried_ns + FLUSH_S * SECOND
        if not record.attempts or is_due or flush_ns <= self._now_ns:
            return Reason("InQueue" if self._view.positions.get(SCHEDULING) else "NoScheduler"), 0
        return Reason("AwaitsChange", _instant(flush_ns)), flush_ns

    def _order(
        self, record: PodRecord, pod_class: PodClass, state: Reason, refused: set[PodClass]
    ) -> tuple[bool, int, bool, int, int, int, str]:
        """Returns the turn of a pod (`queue/units.py`), after those that are not in the queue."""
        sub_priority = pod_class.sub_priority if self._rules.by_sub_priority else 0
        rank = REFUSED_BEFORE if pod_class in refused else FRESH
        if state.code == "AwaitsChange":
            rank = REQUEUED
        is_out = state.code not in QUEUED
        return is_out, -pod_class.priority, not record.nominated, -sub_priority, rank, record.since, record.uid
