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

from services.scheduler.framework.plugin import Profile
from services.scheduler.queue.active_queue import WOKEN, Due, Entry, Order, first_of
from services.scheduler.state.cluster_event import Change
from services.scheduler.state.pod_class import PodAsk
from services.scheduler.state.pod_record import PluginReason, PodFacts
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
    ask: PodAsk


class Chosen(NamedTuple):
    """A pod to try.

    Attributes:
        due: it has to be tried; otherwise a change may have cured its reasons, and when another pod of its class is refused in the
            same cycle, it has not.
        order: when its turn is, among pods of equal right to room that was made.
    """

    pod: PodFacts
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
        self._pods: dict[str, PodFacts] = {}
        self._tickets: dict[str, int] = {}
        self._stands: dict[str, _Stands] = {}
        self._ticket = 0
        self._due = Due(self._tickets)
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

    def put(self, uid: str, facts: PodFacts | None, gateway_since: int, config_seq: int, stayed_at: int = 0) -> None:
        """Take a pod's place over from the state; None and a pod that does not wait have none.

        Args:
            gateway_since: `cluster` seq at which the gateway last started.
            config_seq: `scheduling` seq of the configuration in force: what an earlier one refused is tried again.
            stayed_at: `cluster` seq at which a pod that was to make room for this one was last allowed to stay.
        """
        if (
            facts is None
            or facts.ask is None
            or facts.ask.scheduler not in self._profiles
            or not facts.waiting(gateway_since)
        ):
            if uid in self._pods:
                self._leave(uid)
                del self._pods[uid], self._tickets[uid], self._stands[uid]
            return
        is_new_question = _is_new_question(facts, config_seq) or stayed_at > facts.saw
        stands = _stands(facts, facts.ask, is_new_question=is_new_question)
        if self._stands.get(uid) == stands:
            return  # what changed has no part in its place; heaps do not grow with every update of a pod
        if uid in self._pods:
            self._leave(uid)
        self._stands[uid] = stands
        self._ticket += 1
        ticket = self._tickets[uid] = self._ticket
        self._pods[uid] = facts
        if facts.attempts:
            self._due.note_refused(facts.ask, 1)
            heappush(self._cooling, (facts.tried_ns + backoff_ns(facts.attempts), uid, ticket, is_new_question))
            heappush(self._overdue, (facts.tried_ns + FLUSH_S * SECOND, uid, ticket))
        elif facts.refusals:
            # From the placement on: that was by the clock of this log, the refusal by the gateway's.
            heappush(self._cooling, (facts.placed_ns + backoff_ns(facts.refusals), uid, ticket, True))
        else:
            self._due.push(facts.ask, facts.since, uid, ticket)

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

    def asks(self, key: BinKey) -> Iterable[PodAsk]:
        """The classes of a bin."""
        return self._bins[key].pools

    def choose(self, limit: int, awake: Iterable[BinKey | PoolKey]) -> list[Chosen]:
        """The first `limit` pods that may be tried, in order. Takes nothing out: a pod leaves when the state says so.

        Args:
            awake: bins and pools for whose pods a change may have cured what refused them.
        """
        heaps = [
            self._bins[key.bin].pools[key.ask].heap if isinstance(key, PoolKey) else self._bins[key].heap
            for key in awake
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
        ask, attempts = self._stands[uid].ask, self._stands[uid].attempts
        if attempts:
            self._due.note_refused(ask, -1)

    def _unpool(self, uid: str) -> None:
        key = self._pooled.pop(uid, None)
        if key is not None:
            bin_ = self._bins[key]
            bin_.leave(self._stands[uid].ask)
            if not bin_.pools:
                del self._bins[key]

    def _warm(self, facts: PodFacts, ticket: int, *, is_due: bool) -> None:
        ask = facts.ask
        assert ask is not None, "only pods that have been read wait"
        if is_due:
            self._due.push(ask, facts.since, facts.uid, ticket)
        elif not ask.fault:  # what cannot be read is not cured by what others do
            key = self._pooled[facts.uid] = self._bin_of(facts, ask)
            self._bins.setdefault(key, _Bin()).enter(ask, ((-ask.priority, WOKEN, facts.since, facts.uid), ticket))

    def _bin_of(self, facts: PodFacts, ask: PodAsk) -> BinKey:
        group = ask.scheduler, facts.reasons
        measured = self._measured.get(group)
        if measured is None:
            measured = self._measured[group] = Change.METRIC in self._profiles[ask.scheduler].queueing_hints(
                facts.reasons
            )
        return BinKey(*group, facts.saw, tuple(sorted(facts.saw_reports.items())) if measured else None)


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
        self.pools: dict[PodAsk, _Pool] = {}

    def enter(self, ask: PodAsk, entry: Entry) -> None:
        heappush(self.heap, entry)
        pool = self.pools.setdefault(ask, _Pool())
        heappush(pool.heap, entry)
        pool.pods += 1

    def leave(self, ask: PodAsk) -> None:
        pool = self.pools[ask]
        pool.pods -= 1
        if not pool.pods:
            del self.pools[ask]


class _Stands(NamedTuple):
    """All that a pod's place follows from."""

    ask: PodAsk
    since: int
    attempts: int
    tried_ns: int
    saw: int
    saw_reports: dict[str, int]
    reasons: tuple[PluginReason, ...]
    refusals: int
    placed_ns: int
    is_new_question: bool


def _stands(facts: PodFacts, ask: PodAsk, *, is_new_question: bool) -> _Stands:
    return _Stands(
        ask,
        facts.since,
        facts.attempts,
        facts.tried_ns,
        facts.saw,
        facts.saw_reports,
        facts.reasons,
        facts.refusals,
        facts.placed_ns,
        is_new_question,
    )


def _is_new_question(facts: PodFacts, config_seq: int) -> bool:
    """Whether a refused pod asks for something else than when it was refused, or the rules are others."""
    return facts.changed_seq > facts.saw or facts.tried_seq < config_seq
