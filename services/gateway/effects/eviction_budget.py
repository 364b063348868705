"""The budget of evictions: all services' evictions pass it, so that a mistake of one of them stays small.

Per node, workload, namespace and cluster, at most a number of pods is evicted within a window. An eviction beyond it is
paused (`EvictionPaused`): it stays due, and has its one outcome later. When too many pods wait at once, a breaker holds
all evictions until an operator releases them, since many at once are rather a fault than an intention.

Pure: what was evicted is in the State (`PodEvicted`), and time is an argument.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from services.gateway.intents_by_context_in_snapshot import ByContext, by_cause, by_context
from shared.events import Cause, RecordedEvent
from shared.events.cluster import EvictionPaused, EvictionsHeld, EvictionsReleased, PodEvicted
from shared.kube.instants import SECOND

KEPT_NS = 3_600 * SECOND
"""Age at which an eviction counts for no budget any more; windows are at most as long."""

CLUSTER = "cluster"

BREAKER = "breaker"
"""`by` of a hold that no operator requested."""


class Evicted(msgspec.Struct, frozen=True, array_like=True):
    """An eviction that counts.

    Attributes:
        at_ns: instant of its outcome; 0 while it is in flight.
        node, namespace, workload: of the pod; empty without a node; kind and name of its controller, or empty.
        pod_uid: the pod. It counts once, however many services requested its eviction.
        cause: the first of these intents.
    """

    at_ns: int
    node: str
    namespace: str
    workload: str
    pod_uid: str
    cause: Cause


class Paused(msgspec.Struct, frozen=True, array_like=True):
    """An eviction that waits: `cluster` seq of its EvictionPaused, and the reason there."""

    seq: int
    reason: str


class Hold(msgspec.Struct, frozen=True, array_like=True):
    """Evictions are held: by an operator or the breaker, since the EvictionsHeld at a `cluster` seq."""

    by: str
    reason: str
    since_ns: int
    seq: int


class EvictionRecord(msgspec.Struct):
    """Evictions as `cluster` records them: a part of the gateway's State, written from that context alone.

    Attributes:
        evicted: pod uid -> its eviction, of the newest hour and since the newest release, in the order of the log.
        paused: intents that wait for budget, or for the end of a hold.
        hold: None unless evictions are held.
        released_seq: `cluster` seq of the newest release.
    """

    evicted: dict[str, Evicted] = msgspec.field(default_factory=dict)
    paused: dict[Cause, Paused] = msgspec.field(default_factory=dict)
    hold: Hold | None = None
    released_seq: int = 0

    @property
    def switched_seq(self) -> int:
        """Returns the `cluster` seq of the newest hold that is in force, or release."""
        return self.hold.seq if self.hold is not None else self.released_seq

    def apply(self, record: RecordedEvent) -> None:
        """Folds an event; only those of `cluster` change it."""
        if record.context != CLUSTER:
            return
        oldest_ns = record.at_ns - KEPT_NS
        while self.evicted and self.evicted[first := next(iter(self.evicted))].at_ns < oldest_ns:
            del self.evicted[first]
        cause = record.cause
        match record.event:
            case EvictionPaused(reason=reason) if cause is not None:
                self.paused[cause] = Paused(record.seq, reason)
            case EvictionsHeld(by=by, reason=reason):
                self.hold = Hold(by, reason, record.at_ns, record.seq)
            case EvictionsReleased():
                # By position, not by time: an eviction of a clock that was ahead counts no longer either.
                self.evicted.clear()
                self.hold, self.released_seq = None, record.seq
            case PodEvicted(pod=pod, pod_uid=uid, node=node, workload=workload, without_node=without) if (
                cause is not None and (node or without)
            ):
                one = Evicted(record.at_ns, node, pod.partition("/")[0], workload, uid, cause)
                self.evicted.setdefault(uid, one)

    def counts(self, cause: Cause, pod_uid: str) -> bool:
        """Reports whether the outcome of an intent spends budget."""
        found = self.evicted.get(pod_uid)
        return found is not None and found.cause == cause

    def stored(self) -> "StoredEvictions":
        """Returns the stored form."""
        return StoredEvictions(list(self.evicted.values()), by_context(self.paused), self.hold, self.released_seq)

    def end(self, cause: Cause) -> None:
        """Forgets that an intent is paused: it has its outcome."""
        self.paused.pop(cause, None)


class StoredEvictions(msgspec.Struct):
    """The stored form of an EvictionRecord."""

    evicted: list[Evicted]
    paused: ByContext[Paused]
    hold: Hold | None
    released_seq: int

    def record(self) -> EvictionRecord:
        """Reverses `EvictionRecord.stored`."""
        evicted = {one.pod_uid: one for one in self.evicted}
        return EvictionRecord(evicted, by_cause(self.paused), self.hold, self.released_seq)


class Limits(NamedTuple):
    """Evictions within a window.

    Attributes:
        breaker: so many pods with a paused eviction hold all.
    """

    window_s: float
    node: int
    workload: int
    namespace: int
    cluster: int
    breaker: int


class EvictionBudget:
    """The budget at one instant; `admit` spends it."""

    def __init__(self, record: EvictionRecord, limits: Limits, in_flight: Iterable[Evicted], now_ns: int) -> None:
        """Counts what was evicted within the window, and what is being evicted."""
        self._hold, self._limits = record.hold, limits
        self._spent: dict[tuple[str, str], int] = {}
        for one in recent(record, limits.window_s, now_ns):
            self._spend(one)
        for one in in_flight:
            self._spend(one)

    def admit(self, one: Evicted) -> str:
        """Spends the budget for an eviction; returns the reason why it must wait, or an empty text."""
        if self._hold is not None:
            return f"evictions are held by {self._hold.by}: {self._hold.reason}"
        for (scope, name), limit in zip(_scopes(one), self._limits[1:], strict=False):
            if name and self._spent.get((scope, name), 0) >= limit:
                return f"{scope} {name}: {limit} evictions in {self._limits.window_s:.0f} s"
        self._spend(one)
        return ""

    def _spend(self, one: Evicted) -> None:
        for scope in _scopes(one):
            self._spent[scope] = self._spent.get(scope, 0) + 1


def recent(record: EvictionRecord, window_s: float, now_ns: int) -> list[Evicted]:
    """Returns the evictions within the window; those of a clock that was ahead count too."""
    since_ns = now_ns - int(window_s * SECOND)
    return [one for one in record.evicted.values() if one.at_ns > since_ns]


def _scopes(one: Evicted) -> tuple[tuple[str, str], ...]:
    """Returns the scopes of an eviction, in the order of `Limits`."""
    workload = f"{one.namespace}/{one.workload}" if one.workload else ""
    return ("node", one.node), ("workload", workload), ("namespace", one.namespace), ("cluster", "all")


def breaks(record: EvictionRecord, pausing: Iterable[Cause], pod_of: Callable[[Cause], str], limits: Limits) -> bool:
    """Reports whether the breaker holds all evictions: those of so many pods were paused since the newest release, and
    still wait.

    A pod counts once: the quota ledger requests the same evictions again while its quota is overused, and agents while
    their node is short.

    Args:
        pausing: evictions whose pause the State does not have yet.
        pod_of: returns the uid of an eviction's pod.
    """
    if record.hold is not None:
        return False
    since = (cause for cause, each in record.paused.items() if each.seq > record.released_seq)
    return len({pod_of(cause) for cause in (*since, *pausing)}) >= limits.breaker
