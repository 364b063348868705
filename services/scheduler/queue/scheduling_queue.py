"""Which pods may be tried now, and in which order.

Nothing here is folded from arrivals. A pod's place follows from what the state says of it (how often it was refused, when, by
what, at which position) and from `now`:

    due      never tried; or its backoff is over and it asks for something else than before, the configuration is another, or a
             binding failed; or refused so long ago that it is tried whatever changed
    cooling  refused; waits for its backoff: 1 s, doubled with each attempt, at most 10 s
    pooled   backoff over; waits for a change that can cure one of its reasons. Pods of one class refused in one cycle share
             a pool, pools of one reason and cycle share a bin, so that a flood costs one look a cycle

Of equal priority, classes of which no pod has been refused come first, so that a flood of pods that fit nowhere delays nobody else; what
a change has woken comes last.

Removed entries stay in the heaps until they come up; a pod's ticket tells which entry is its newest.

Source: spec/scheduler-core.md 1.3.
"""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from services.scheduler.framework.profile import Profile
from services.scheduler.queue.active_queue import WOKEN, ActiveQueue, Entry, Order, first_of
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import PluginReason, PodRecord
from shared.kube.instants import SECOND

FIRST_BACKOFF_S = 1
LONGEST_BACKOFF_S = 10
FLUSH_S = 300
"""A refused pod is tried again after this long, even if nothing changed."""


class BinKey(NamedTuple):
    """What the pods of a bin have in common: profile, reasons, and the positions of the cycle that refused them.

    Attributes:
        saw: of `cluster`.
        saw_reports: of `metrics-*`, by name; None when no report queueing_hints the reasons.
    """

    scheduler: str
    reasons: tuple[PluginReason, ...]
    saw: int
    saw_reports: tuple[tuple[str, int], ...] | None = None


class PoolKey(NamedTuple):
    """One class of a bin."""

    bin: BinKey
    pod_class: PodClass


class Chosen(NamedTuple):
    """A pod to try.

    Attributes:
        due: it has to be tried; otherwise a change may have cured its reasons, and when another pod of its class is refused in the
            same cycle, it has not.
        order: when its turn is, among pods of equal right to room that was made.
    """

    pod: PodRecord
    due: bool
    order: Order


def backoff_ns(attempts: int) -> int:
    """How long a pod waits after so many attempts: 0, 1, 2, 4, 8, 10, 10 ... s."""
    if attempts <= 0:
        return 0
    return min(FIRST_BACKOFF_S << min(attempts - 1, 8), LONGEST_BACKOFF_S) * SECOND


class Queue:
    """The pods that wait for one of the profiles."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._profiles = profiles
        self._pods: dict[str, PodRecord] = {}
        self._tickets: dict[str, int] = {}
        self._stands: dict[str, _Stands] = {}
        self._ticket = 0
        self._due = ActiveQueue(self._tickets)
        self._cooling: list[tuple[int, str, int, bool]] = []
        self._overdue: list[tuple[int, str, int]] = []
        self._advanced_ns = 0
        self._bins: dict[BinKey, _Bin] = {}
        self._pooled: dict[str, BinKey] = {}  # uid -> where it is
        # (profile, reasons) -> whether a report can cure them.
        self._measured: dict[tuple[str, tuple[PluginReason, ...]], bool] = {}

    def __len__(self) -> int:
        """How many pods wait, whether or not they may be tried now."""
        return len(self._pods)

    def put(
        self, uid: str, pod_record: PodRecord | None, gateway_since: int, config_seq: int, eviction_refused_at: int = 0
    ) -> None:
        """Take a pod's place over from the state; None and a pod that does not wait have none.

        Args:
            gateway_since: `cluster` seq at which the gateway last started.
            config_seq: `scheduling` seq of the configuration in force: what an earlier one refused is tried again.
            eviction_refused_at: `cluster` seq at which a pod that was to make room for this one was last allowed to stay.
        """
        if (
            pod_record is None
            or pod_record.pod_class is None
            or pod_record.pod_class.scheduler not in self._profiles
            or not pod_record.waiting(gateway_since)
        ):
            if uid in self._pods:
                self._leave(uid)
                del self._pods[uid], self._tickets[uid], self._stands[uid]
            return
        is_new_question = _is_new_question(pod_record, config_seq) or eviction_refused_at > pod_record.saw
        stands = _stands(pod_record, pod_record.pod_class, is_new_question=is_new_question)
        if self._stands.get(uid) == stands:
            return  # what changed has no part in its place; heaps do not grow with every update of a pod
        if uid in self._pods:
            self._leave(uid)
        self._stands[uid] = stands
        self._ticket += 1
        ticket = self._tickets[uid] = self._ticket
        self._pods[uid] = pod_record
        if pod_record.attempts:
            self._due.note_refused(pod_record.pod_class, 1)
            heappush(
                self._cooling, (pod_record.tried_ns + backoff_ns(pod_record.attempts), uid, ticket, is_new_question)
            )
            heappush(self._overdue, (pod_record.tried_ns + FLUSH_S * SECOND, uid, ticket))
        elif pod_record.refusals:
            # From the placement on: that was by the clock of this log, the refusal by the gateway's.
            heappush(self._cooling, (pod_record.placed_ns + backoff_ns(pod_record.refusals), uid, ticket, True))
        else:
            self._due.push(pod_record.pod_class, pod_record.since, uid, ticket)

    def advance(self, now_ns: int) -> None:
        """Move what is over by `now_ns`: backoffs, and the wait of pods that nothing has woken for long."""
        self._advanced_ns = now_ns
        while self._cooling and self._cooling[0][0] <= now_ns:
            _, uid, ticket, is_due = heappop(self._cooling)
            if self._tickets.get(uid) == ticket:
                self._warm(self._pods[uid], ticket, is_due=is_due)
        while self._overdue and self._overdue[0][0] <= now_ns:
            _, uid, ticket = heappop(self._overdue)
            if self._tickets.get(uid) == ticket:
                self._unpool(uid)
                self._ticket += 1
                self._tickets[uid] = self._ticket
                self._warm(self._pods[uid], self._ticket, is_due=True)

    def next_at_ns(self) -> int | None:
        """When time alone will next let a pod be tried or pooled."""
        times = [heap[0][0] for heap in (self._cooling, self._overdue) if heap]
        return min(times, default=None)

    def standing(self, uid: str) -> tuple[str, int] | None:
        """As of the last `advance`: a reason's code and until when it holds (0: no time ends it); None for a pod that does not wait here."""
        stands = self._stands.get(uid)
        if stands is None:
            return None
        if uid in self._pooled:
            return "AwaitsChange", stands.tried_ns + FLUSH_S * SECOND
        since_ns, times = (stands.tried_ns, stands.attempts) if stands.attempts else (stands.placed_ns, stands.refusals)
        until_ns = since_ns + backoff_ns(times)
        return ("BackingOff", until_ns) if times and until_ns > self._advanced_ns else ("InQueue", 0)

    def bins(self) -> list[BinKey]:
        """The bins that hold pods."""
        return list(self._bins)

    def pod_classes(self, key: BinKey) -> Iterable[PodClass]:
        """The classes of a bin."""
        return self._bins[key].pools

    def choose(self, limit: int, bins_to_requeue: Iterable[BinKey | PoolKey]) -> list[Chosen]:
        """The first `limit` pods that may be tried, in order. Takes nothing out: a pod leaves when the state says so.

        Args:
            bins_to_requeue: bins and pools for whose pods a change may have cured what refused them.
        """
        heaps = [
            self._bins[key.bin].pools[key.pod_class].heap if isinstance(key, PoolKey) else self._bins[key].heap
            for key in bins_to_requeue
        ]
        heads = [(head, number) for number, heap in enumerate(heaps) if (head := first_of(heap, self._tickets))]
        heapify(heads)
        chosen: list[Chosen] = []
        taken: list[tuple[list[Entry], Entry]] = []
        dues = self._due.in_order()
        due = next(dues, None)
        while len(chosen) < limit:
            if due is not None and (not heads or due < heads[0][0]):
                chosen.append(Chosen(self._pods[due[0][3]], due=True, order=due[0]))
                due = next(dues, None)
            elif heads:
                entry, number = heappop(heads)
                heap = heaps[number]
                taken.append((heap, heappop(heap)))
                chosen.append(Chosen(self._pods[entry[0][3]], due=False, order=entry[0]))
                if (head := first_of(heap, self._tickets)) is not None:
                    heappush(heads, (head, number))
            else:
                break
        for heap, entry in taken:
            heappush(heap, entry)
        return chosen

    def _leave(self, uid: str) -> None:
        """A pod gives up its place."""
        self._unpool(uid)
        pod_class, attempts = self._stands[uid].pod_class, self._stands[uid].attempts
        if attempts:
            self._due.note_refused(pod_class, -1)

    def _unpool(self, uid: str) -> None:
        key = self._pooled.pop(uid, None)
        if key is not None:
            bin_ = self._bins[key]
            bin_.leave(self._stands[uid].pod_class)
            if not bin_.pools:
                del self._bins[key]

    def _warm(self, pod_record: PodRecord, ticket: int, *, is_due: bool) -> None:
        pod_class = pod_record.pod_class
        assert pod_class is not None, "only pods that have been read wait"
        if is_due:
            self._due.push(pod_class, pod_record.since, pod_record.uid, ticket)
        elif not pod_class.fault:  # what cannot be read is not cured by what others do
            key = self._pooled[pod_record.uid] = self._bin_of(pod_record, pod_class)
            self._bins.setdefault(key, _Bin()).enter(
                pod_class, ((-pod_class.priority, WOKEN, pod_record.since, pod_record.uid), ticket)
            )

    def _bin_of(self, pod_record: PodRecord, pod_class: PodClass) -> BinKey:
        group = pod_class.scheduler, pod_record.reasons
        measured = self._measured.get(group)
        if measured is None:
            measured = self._measured[group] = ClusterEvent.METRIC in self._profiles[
                pod_class.scheduler
            ].queueing_hints(pod_record.reasons)
        return BinKey(*group, pod_record.saw, tuple(sorted(pod_record.saw_reports.items())) if measured else None)


class _Pool:
    """The pods of one class in a bin: how many, and in which order."""

    __slots__ = ("heap", "pods")

    def __init__(self) -> None:
        self.pods = 0
        self.heap: list[Entry] = []


class _Bin:
    """Pods that the same changes wake: all in one order, and by class, for one class may be known to be cured by none."""

    __slots__ = ("heap", "pools")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.pools: dict[PodClass, _Pool] = {}

    def enter(self, pod_class: PodClass, entry: Entry) -> None:
        heappush(self.heap, entry)
        pool = self.pools.setdefault(pod_class, _Pool())
        heappush(pool.heap, entry)
        pool.pods += 1

    def leave(self, pod_class: PodClass) -> None:
        pool = self.pools[pod_class]
        pool.pods -= 1
        if not pool.pods:
            del self.pools[pod_class]


class _Stands(NamedTuple):
    """All that a pod's place follows from."""

    pod_class: PodClass
    since: int
    attempts: int
    tried_ns: int
    saw: int
    saw_reports: dict[str, int]
    reasons: tuple[PluginReason, ...]
    refusals: int
    placed_ns: int
    is_new_question: bool


def _stands(pod_record: PodRecord, pod_class: PodClass, *, is_new_question: bool) -> _Stands:
    return _Stands(
        pod_class,
        pod_record.since,
        pod_record.attempts,
        pod_record.tried_ns,
        pod_record.saw,
        pod_record.saw_reports,
        pod_record.reasons,
        pod_record.refusals,
        pod_record.placed_ns,
        is_new_question,
    )


def _is_new_question(pod_record: PodRecord, config_seq: int) -> bool:
    """Whether a refused pod asks for something else than when it was refused, or the rules are others."""
    return pod_record.changed_seq > pod_record.saw or pod_record.tried_seq < config_seq
