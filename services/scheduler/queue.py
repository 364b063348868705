"""Which pods may be tried now, and in which order.

Nothing here is folded from arrivals. A pod's place follows from what the state says of it (how often it was refused, when, by
what, at which position) and from `now`:

    due      never tried; or its backoff is over and it asks for something else than before, the configuration is another, or a
             binding failed; or refused so long ago that it is tried whatever changed
    cooling  refused; waits for its backoff: 1 s, doubled with each attempt, at most 10 s
    pooled   backoff over; waits for a change that can cure one of its reasons. Pods of one class refused in one round share
             a pool, so that a flood of them costs one look a round

Removed entries stay in the heaps until they come up; a pod's ticket tells which entry is its newest.

Source: spec/scheduler-core.md 1.3.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from services.scheduler.ask import PodAsk
from services.scheduler.framework import Profile
from services.scheduler.pods import PluginReason, PodFacts
from shared.kube.instants import SECOND

FIRST_BACKOFF_S = 1
LONGEST_BACKOFF_S = 10
FLUSH_S = 300
"""A refused pod is tried again after this long, even if nothing changed."""

Order = tuple[int, int, int, str]
"""(-priority, 0 when never tried or overdue, `since`, uid): the order in which pods are tried."""


class PoolKey(NamedTuple):
    """What the pods of a pool have in common: class, position that refused them, reasons."""

    ask: PodAsk
    saw: int
    reasons: tuple[PluginReason, ...]


class Chosen(NamedTuple):
    """A pod to try.

    Attributes:
        due: it has to be tried; otherwise a change may have cured its reasons, and when another pod of its class is refused in the
            same round, it has not.
    """

    pod: PodFacts
    due: bool


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
        self._due: list[tuple[Order, int]] = []
        self._cooling: list[tuple[int, str, int, bool]] = []
        self._overdue: list[tuple[int, str, int]] = []
        self._pools: dict[PoolKey, list[tuple[Order, int]]] = {}

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
                del self._pods[uid], self._tickets[uid], self._stands[uid]
            return
        is_new_question = _is_new_question(facts, config_seq) or stayed_at > facts.saw
        stands = _stands(facts, facts.ask, is_new_question=is_new_question)
        if self._stands.get(uid) == stands:
            return  # what changed has no part in its place; heaps do not grow with every update of a pod
        self._stands[uid] = stands
        self._ticket += 1
        ticket = self._tickets[uid] = self._ticket
        self._pods[uid] = facts
        if not facts.attempts and not facts.refusals:
            heappush(self._due, (_order(facts, facts.ask, due=True), ticket))
        elif not facts.attempts:
            heappush(self._cooling, (facts.refused_ns + backoff_ns(facts.refusals), uid, ticket, True))
        else:
            heappush(self._cooling, (facts.tried_ns + backoff_ns(facts.attempts), uid, ticket, is_new_question))
            heappush(self._overdue, (facts.tried_ns + FLUSH_S * SECOND, uid, ticket))

    def advance(self, now_ns: int) -> None:
        """Move what is over by `now_ns`: backoffs, and the wait of pods that nothing has woken for long."""
        while self._cooling and self._cooling[0][0] <= now_ns:
            _, uid, ticket, is_due = heappop(self._cooling)
            if self._tickets.get(uid) == ticket:
                self._warm(self._pods[uid], ticket, is_due=is_due)
        while self._overdue and self._overdue[0][0] <= now_ns:
            _, uid, ticket = heappop(self._overdue)
            if self._tickets.get(uid) == ticket:
                self._ticket += 1
                self._tickets[uid] = self._ticket
                self._warm(self._pods[uid], self._ticket, is_due=True)

    def next_at_ns(self) -> int | None:
        """When time alone will next let a pod be tried or pooled."""
        times = [heap[0][0] for heap in (self._cooling, self._overdue) if heap]
        return min(times, default=None)

    def pools(self) -> list[PoolKey]:
        """The pools that hold pods."""
        for key in [key for key, heap in self._pools.items() if not self._head(heap)]:
            del self._pools[key]
        return list(self._pools)

    def choose(self, limit: int, woken: Callable[[PoolKey], bool]) -> list[Chosen]:
        """The first `limit` pods that may be tried, in order. Takes nothing out: a pod leaves when the state says so.

        Args:
            woken: whether a change may have cured what refused a pool's pods.
        """
        sources = [(self._due, True)] + [(self._pools[key], False) for key in self.pools() if woken(key)]
        heads = [(heap[0], number) for number, (heap, _) in enumerate(sources) if self._head(heap)]
        heapify(heads)
        chosen: list[Chosen] = []
        taken: list[tuple[int, tuple[Order, int]]] = []
        while heads and len(chosen) < limit:
            entry, number = heappop(heads)
            heap, due = sources[number]
            taken.append((number, heappop(heap)))
            chosen.append(Chosen(self._pods[entry[0][3]], due))
            if self._head(heap):
                heappush(heads, (heap[0], number))
        for number, entry in taken:
            heappush(sources[number][0], entry)
        return chosen

    def _head(self, heap: list[tuple[Order, int]]) -> bool:
        """Drop entries that are no pod's newest from the top; whether one is left."""
        while heap and self._tickets.get(heap[0][0][3]) != heap[0][1]:
            heappop(heap)
        return bool(heap)

    def _warm(self, facts: PodFacts, ticket: int, *, is_due: bool) -> None:
        assert facts.ask is not None, "only pods that have been read wait"
        entry = (_order(facts, facts.ask, due=is_due), ticket)
        if is_due:
            heappush(self._due, entry)
        else:
            heappush(self._pools.setdefault(PoolKey(facts.ask, facts.saw, facts.reasons), []), entry)


def _stands(facts: PodFacts, ask: PodAsk, *, is_new_question: bool) -> "_Stands":
    """All that a pod's place follows from."""
    return (
        ask,
        facts.since,
        facts.attempts,
        facts.tried_ns,
        facts.saw,
        facts.reasons,
        facts.refusals,
        facts.refused_ns,
        is_new_question,
    )


def _is_new_question(facts: PodFacts, config_seq: int) -> bool:
    """Whether a refused pod asks for something else than when it was refused, or the rules are others."""
    return facts.changed_seq > facts.saw or facts.tried_seq < config_seq


_Stands = tuple[PodAsk, int, int, int, int, tuple[PluginReason, ...], int, int, bool]


def _order(facts: PodFacts, ask: PodAsk, *, due: bool) -> Order:
    return (-ask.priority, 0 if due else 1, facts.since, facts.uid)
