"""The scheduling queue: waiting pods as active, in backoff, or unschedulable until an event.

The queue is no history of arrivals: a pod's place follows from its record (number of attempts, time, reasons and
positions of the last one) and from `now`:

    active         never tried; or the backoff is over and its class or the configuration changed, or a binding failed;
                   or the last attempt is FLUSH_S ago
    backoff        refused; waits 1 s, doubled with each attempt, at most 10 s
    unschedulable  the backoff is over; waits for an event that may end one of its reasons. Pods of one class refused in
                   one cycle share a pool, pools of one set of reasons and one cycle share a bin, so that a flood of
                   refused pods costs one comparison a cycle

Pods of equal `spec.priority` are in the order of their sub-priority (label `koordinator.sh/priority`), unless that is
switched off. Among equals, classes without a refused pod come first, so that a flood of pods that fit on no node delays
no other pod; pods requeued by an event come last.

Obsolete entries stay in the heaps until they reach the top; the newest entry of a pod has the pod's ticket.

Source: spec/scheduler-core.md 1.3.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from services.scheduler.framework.profile import Profile
from services.scheduler.queue.active_queue import FRESH, REQUEUED, ActiveQueue, Entry, Order, first_of
from services.scheduler.queue.refused_bins import Bin, BinKey, PoolKey
from services.scheduler.queue.retries import FLUSH_S, LONGEST_BACKOFF_S, backoff_ends_ns, backoff_ns, has_changed
from services.scheduler.queue.units import UNGROUPED, Group, Grouped, Groupings, Groups, Unit
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.pod_attempts_and_refusals import NO_DECISIONS, PluginReason
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.kube.instants import SECOND


class SchedulingQueue:
    """The pods that wait for one of the profiles."""

    def __init__(
        self, profiles: Mapping[str, Profile], groupings: Groupings | None = None, *, by_sub_priority: bool = True
    ) -> None:
        """Starts empty.

        Args:
            groupings: of the profiles that group pods.
            by_sub_priority: pods of equal priority are in the order of their sub-priority.
        """
        self._profiles = profiles
        self._by_sub_priority = by_sub_priority
        self._groups = Groups(groupings or {})
        self._pods: dict[str, PodRecord] = {}
        self._tickets: dict[str, int] = {}
        self._inputs: dict[str, _PlaceInputs] = {}
        self._ticket = 0
        self._active = ActiveQueue(self._tickets)
        self._backoff: list[tuple[int, str, int, bool]] = []
        self._flushes: list[tuple[int, str, int]] = []
        self._advanced_ns = 0
        self._newest_ns = 0  # of the attempts
        self._bins: dict[BinKey, Bin] = {}
        self._bin_of_uid: dict[str, BinKey] = {}  # uid -> where it is
        # (profile, reasons) -> True when a report can end them.
        self._reads_reports: dict[tuple[str, tuple[PluginReason, ...]], bool] = {}

    def __len__(self) -> int:
        """Returns the number of waiting pods, including those that may not be tried now."""
        return len(self._pods)

    def takes(self, pod_record: PodRecord | None, gateway_since: int, grouped: Grouped) -> bool:
        """Returns True for a pod that waits for one of the profiles and is not held back; for the arguments see `put`."""
        return (
            pod_record is not None
            and pod_record.pod_class is not None
            and pod_record.pod_class.scheduler in self._profiles
            and pod_record.waiting(gateway_since)
            and grouped.membership.held_back is None
        )

    def put(
        self,
        uid: str,
        pod_record: PodRecord | None,
        gateway_since: int,
        config_seq: int,
        retry_after: int = 0,
        grouped: Grouped = UNGROUPED,
    ) -> None:
        """Puts a pod where its record says; None, and a pod that does not wait, is removed.

        Args:
            gateway_since: `cluster` seq at which the gateway last started.
            config_seq: `scheduling` seq of the configuration in force: pods that an earlier one refused are tried
                again.
            retry_after: `cluster` seq of the last refused eviction of one of its victims, or at which the last pod left
                the node that it is nominated for.
            grouped: the result of `grouped`: its group, from which it is kept out while it is held back.
        """
        if pod_record is None or pod_record.pod_class is None or not self.takes(pod_record, gateway_since, grouped):
            self.leave(uid)
            return
        is_changed = False
        if pod_record.attempts:
            changed_at = max(retry_after, grouped.membership.changed_seq)
            is_changed = has_changed(pod_record, config_seq) or changed_at > pod_record.saw
        inputs = _inputs_of(pod_record, pod_record.pod_class, grouped, has_changed=is_changed)
        if self._inputs.get(uid) == inputs:
            return  # the change does not affect its place: heaps must not grow with every update of a pod
        if uid in self._pods:
            self._leave(uid)
        self._inputs[uid] = inputs
        self._ticket += 1
        ticket = self._tickets[uid] = self._ticket
        self._pods[uid] = pod_record
        self._groups.enter(uid, grouped.group)
        if inputs.tried_ns or inputs.placed_ns:
            self._newest_ns = max(self._newest_ns, inputs.tried_ns, inputs.placed_ns)
        if pod_record.attempts:
            self._active.note_refused(pod_record.pod_class, 1)
            heappush(self._backoff, (pod_record.tried_ns + backoff_ns(pod_record.attempts), uid, ticket, is_changed))
            heappush(self._flushes, (pod_record.tried_ns + FLUSH_S * SECOND, uid, ticket))
        elif pod_record.refusals:
            # From the placement on: its time is by the clock of this log, that of the rejection by the gateway's.
            heappush(self._backoff, (pod_record.placed_ns + backoff_ns(pod_record.refusals), uid, ticket, True))
        else:
            self._push(pod_record.pod_class, inputs.since, uid, ticket)

    def leave(self, uid: str) -> None:
        """Removes a pod, if it is there."""
        if uid in self._pods:
            self._leave(uid)
            self._groups.leave(uid)
            del self._pods[uid], self._tickets[uid], self._inputs[uid]

    def advance(self, now_ns: int) -> None:
        """Moves pods whose backoff has ended by `now_ns`, and those that no event has requeued for FLUSH_S."""
        self._advanced_ns = now_ns
        if now_ns < self._newest_ns:
            self._set_back(now_ns)
        while self._backoff and self._backoff[0][0] <= now_ns:
            _, uid, ticket, is_due = heappop(self._backoff)
            if self._tickets.get(uid) == ticket:
                self._end_backoff(self._pods[uid], ticket, is_due=is_due)
        while self._flushes and self._flushes[0][0] <= now_ns:
            _, uid, ticket = heappop(self._flushes)
            if self._tickets.get(uid) == ticket:
                self._leave_bin(uid)
                self._ticket += 1
                self._tickets[uid] = self._ticket
                self._end_backoff(self._pods[uid], self._ticket, is_due=True)

    def _set_back(self, now_ns: int) -> None:
        """Shortens the waits that a clock which was ahead has made longer than the longest one."""
        self._newest_ns = now_ns
        backoff_ends_ns, flush_ns = now_ns + LONGEST_BACKOFF_S * SECOND, now_ns + FLUSH_S * SECOND
        self._backoff = [
            (min(at_ns, backoff_ends_ns), uid, ticket, is_due) for at_ns, uid, ticket, is_due in self._backoff
        ]
        self._flushes = [(min(at_ns, flush_ns), uid, ticket) for at_ns, uid, ticket in self._flushes]
        heapify(self._backoff)
        heapify(self._flushes)

    def next_at_ns(self) -> int | None:
        """Returns the next time at which a pod moves without an event."""
        times = [heap[0][0] for heap in (self._backoff, self._flushes) if heap]
        return min(times, default=None)

    def status_of(self, uid: str) -> tuple[str, int] | None:
        """Returns the pod's status as of the last `advance`: a reason's code and the time at which it ends, 0 without
        one.

        None for a pod that does not wait here.
        """
        inputs = self._inputs.get(uid)
        if inputs is None:
            return None
        if uid in self._bin_of_uid:
            return "AwaitsChange", inputs.tried_ns + FLUSH_S * SECOND
        until_ns = backoff_ends_ns(inputs.attempts, inputs.tried_ns, inputs.refusals, inputs.placed_ns)
        return ("BackingOff", until_ns) if until_ns > self._advanced_ns else ("InQueue", 0)

    def bins(self) -> list[BinKey]:
        """Returns the bins with pods."""
        return list(self._bins)

    def pod_classes(self, key: BinKey) -> Iterable[PodClass]:
        """Returns the classes of a bin."""
        return self._bins[key].pools

    def pools_of_groups(self) -> Iterator[PoolKey]:
        """Yields a pool with refused pods of each group that has any."""
        for group in self._groups.groups():
            for uid in self._groups.members(group):
                if (bin_ := self._bin_of_uid.get(uid)) is not None:
                    yield PoolKey(bin_, self._inputs[uid].pod_class)
                    break

    def has_active(self) -> bool:
        """Returns True when a pod is to be tried whatever the queueing hints say."""
        return next(self._active.in_order(), None) is not None

    def grouped(self, pod_record: PodRecord) -> Grouped:
        """Returns the group with which a waiting pod is placed, and whether it is held back."""
        return self._groups.find(pod_record)

    def choose(self, limit: int, bins_to_requeue: Iterable[BinKey | PoolKey]) -> list[Unit]:
        """Returns the first units to try, in order, at most `limit` of them. None is removed: a pod leaves the queue
        with a change of its record.

        A unit is tried when one of its pods is, and takes one place whatever the number of its pods.

        Args:
            bins_to_requeue: bins and pools for which an event may have ended a reason.
        """
        heaps = [
            self._bins[key.bin].pools[key.pod_class].heap if isinstance(key, PoolKey) else self._bins[key].heap
            for key in bins_to_requeue
        ]
        heads = [(head, number) for number, heap in enumerate(heaps) if (head := first_of(heap, self._tickets))]
        heapify(heads)
        chosen: list[Unit] = []
        taken: list[tuple[list[Entry], Entry]] = []
        active = self._active.in_order()
        due = next(active, None)
        in_groups: set[str] = set()  # uids of the chosen units of several pods
        while len(chosen) < limit:
            if due is not None and (not heads or due < heads[0][0]):
                order, is_due = due[0], True
                due = next(active, None)
            elif heads:
                entry, number = heappop(heads)
                heap = heaps[number]
                taken.append((heap, heappop(heap)))
                order, is_due = entry[0], False
                if (head := first_of(heap, self._tickets)) is not None:
                    heappush(heads, (head, number))
            else:
                break
            if not self._groups:
                chosen.append(Unit((self._pods[order[-1]],), is_due, order))
            elif order[-1] not in in_groups:
                unit = self._unit(order, is_due=is_due)
                in_groups.update(pod.uid for pod in unit.pods)
                if unit.group is None or unit.requirement is not None:
                    chosen.append(unit)
        for heap, entry in taken:
            heappush(heap, entry)
        return chosen

    def _unit(self, order: Order, *, is_due: bool) -> Unit:
        """Returns the unit of the pod with this order; its pods by priority and arrival.

        It has a group but no requirement where too few pods of the group wait.
        """
        group = self._groups.of(order[-1])
        if group is None:
            return Unit((self._pods[order[-1]],), is_due, order)
        members = sorted((self._pods[uid] for uid in self._groups.members(group)), key=self._member_order)
        requirement = self._groups.requirement(group, members)
        if requirement is not None and len(members) == 1 and not self._groups.restricts_one(group):
            group = requirement = None  # it is placed like any pod
        return Unit(tuple(members), is_due, order, group, requirement)

    def groups(self) -> Iterable[Group]:
        """Returns the groups with a waiting pod."""
        return self._groups.groups()

    def unit_of(self, group: Group) -> Unit | None:
        """Returns the unit of a group; None where too few of its pods wait."""
        uid = next(iter(self._groups.members(group)), None)
        if uid is None:
            return None
        unit = self._unit(self.order_of(self._pods[uid]), is_due=False)
        return None if unit.requirement is None else unit

    def pods_of(self, group: Group) -> tuple[PodRecord, ...]:
        """Returns the waiting pods of a group that are tried together, also where that is one pod, which is placed like
        any; none where too few wait.
        """
        uid = next(iter(self._groups.members(group)), None)
        if uid is None:
            return ()
        unit = self._unit(self.order_of(self._pods[uid]), is_due=False)
        return () if unit.group is not None and unit.requirement is None else unit.pods

    def order_of(self, pod: PodRecord) -> Order:
        """Returns the order of a waiting pod by priority and arrival, whatever was refused before."""
        priority, sub_priority, since, uid = self._member_order(pod)
        return priority, sub_priority, FRESH, since, uid

    def _member_order(self, pod: PodRecord) -> tuple[int, int, int, str]:
        pod_class = self._inputs[pod.uid].pod_class
        return -pod_class.priority, -self._sub_priority(pod_class), pod.since, pod.uid

    def _sub_priority(self, pod_class: PodClass) -> int:
        return pod_class.sub_priority if self._by_sub_priority else 0

    def _push(self, pod_class: PodClass, since: int, uid: str, ticket: int) -> None:
        self._active.push(pod_class, self._sub_priority(pod_class), since, uid, ticket)

    def _leave(self, uid: str) -> None:
        """Removes a pod from its place."""
        self._leave_bin(uid)
        pod_class, attempts = self._inputs[uid].pod_class, self._inputs[uid].attempts
        if attempts:
            self._active.note_refused(pod_class, -1)

    def _leave_bin(self, uid: str) -> None:
        if uid in self._bin_of_uid:
            key = self._bin_of_uid.pop(uid)
            bin_ = self._bins[key]
            bin_.leave(self._inputs[uid].pod_class)
            if not bin_.pools:
                del self._bins[key]

    def _end_backoff(self, pod_record: PodRecord, ticket: int, *, is_due: bool) -> None:
        pod_class = pod_record.pod_class
        assert pod_class is not None, "only pods that have been read wait"
        if is_due:
            self._push(pod_class, pod_record.since, pod_record.uid, ticket)
        elif not pod_class.fault:  # no event of another object makes an unreadable pod readable
            key = self._bin_of_uid[pod_record.uid] = self._bin_of(pod_record, pod_class)
            sub_priority = self._sub_priority(pod_class)
            order = (-pod_class.priority, -sub_priority, REQUEUED, pod_record.since, pod_record.uid)
            self._bins.setdefault(key, Bin()).enter(pod_class, (order, ticket))

    def _bin_of(self, pod_record: PodRecord, pod_class: PodClass) -> BinKey:
        group = pod_class.scheduler, pod_record.reasons
        reads_reports = self._reads_reports.get(group)
        if reads_reports is None:
            reads_reports = self._reads_reports[group] = ClusterEvent.METRIC in self._profiles[
                pod_class.scheduler
            ].queueing_hints(pod_record.reasons)
        saw_reports = tuple(sorted(pod_record.saw_reports.items())) if reads_reports else None
        saw_released = max(pod_record.attempt.saw_released, self._inputs[pod_record.uid].released_seq)
        return BinKey(*group, pod_record.saw, saw_released, saw_reports)


class _PlaceInputs(NamedTuple):
    """All fields that a pod's place in the queue depends on."""

    pod_class: PodClass
    since: int
    attempts: int
    tried_ns: int
    saw: int
    saw_reports: dict[str, int]
    reasons: tuple[PluginReason, ...]
    refusals: int
    placed_ns: int
    group: Group | None
    released_seq: int
    has_changed: bool


def _inputs_of(pod_record: PodRecord, pod_class: PodClass, grouped: Grouped, *, has_changed: bool) -> _PlaceInputs:
    # Without an attempt since its last placement, those of an earlier one do not count.
    attempt = pod_record.attempt if pod_record.attempts else NO_DECISIONS.attempt
    return _PlaceInputs(
        pod_class,
        pod_record.since,
        pod_record.attempts,
        attempt.at_ns,
        attempt.saw,
        attempt.saw_reports,
        attempt.reasons,
        pod_record.refusals,
        pod_record.placed_ns,
        grouped.group,
        grouped.membership.released_seq,
        has_changed,
    )
