"""One pod as the scheduler's state knows it: facts by context, and what follows from them."""

from collections import deque
from itertools import islice, repeat
from operator import attrgetter
from typing import Any, NamedTuple

from services.scheduler.ask import PodAsk
from shared.kube.instants import BadTime, instant_ns
from shared.kube.pod import Pod

_FURTHEST_NS = 2**62
"""Some 146 years from 1970: an instant beyond it is taken for one at it."""

PluginReason = tuple[str, str]
"""(plugin, reason code)."""


class Held(NamedTuple):
    """Where a pod counts.

    Attributes:
        assigned_ns: since when: the time of its PodScheduled condition, else when the node was first seen or decided.
        initialized_ns: the time of its Initialized condition, 0 when that is not True.
        ending: it is being deleted.
        allotted: what it has of the node besides what it asks for, as annotations (`ask.ALLOTMENTS`).
    """

    node: str
    ask: PodAsk
    name: str
    assigned_ns: int
    initialized_ns: int
    ending: bool = False
    allotted: dict[str, str] | None = None


class PodFacts:
    """Each field is written from one context alone, so contexts may arrive in any order.

    From `cluster`:
        since: seq of the first observation; 0 while only our own log has spoken of the pod.
        observed: the newest object, until it is read into the fields below (`ClusterView.read`).
        node, node_since_ns: where it runs, and when that was first seen (append time).
        changed_seq: seq of the last change of what it asks for.
        refused_seq: our newest placement (`scheduling` seq) that was answered with anything but PodBound.
        refusals: how many there were.
        withheld_seq: seq of the last BindWithheld; the pod waits until the gateway starts anew.
        allotted: what it has of its node, as it says itself.
        started_ns: when it started, 0 before.
        stayed_seq: our newest wish that it goes (`scheduling` seq) that was refused or failed; stayed_at: when (`cluster` seq).
    From `scheduling`:
        placed_*: our newest placement. attempts, tried_ns, tried_seq, saw, reasons: the last round that found no node, and what
        refused the nodes there; told: the code last written to the pod. compared: what another scheduler did with it has been
        compared with what we would have done. nominated: the node on which pods were asked to make room for it. asked_seq: our newest
        wish that it goes. saw_quota: the `quota` seq up to which that round, or the ledger for it, had read. saw_reports: the same of
        each of `metrics-*`, one dict for all pods of a round.
    """

    __slots__ = (
        "allotted", "ask", "asked_seq", "attempts", "changed_seq", "compared", "deleting", "ended", "initialized_ns", "name", "node",
        "node_since_ns", "nominated", "observed", "placed_allotted", "placed_node", "placed_ns", "placed_seq", "reasons", "refusals",
        "refused_seq", "saw", "saw_quota", "saw_reports", "scheduled_ns", "since", "started_ns", "stayed_at", "stayed_seq", "told", "tried_ns", "tried_seq", "uid", "withheld_seq",
    )  # fmt: skip

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.since = 0
        self.name = ""
        self.observed: Pod | None = None
        self.ask: PodAsk | None = None
        self.node = ""
        self.node_since_ns = 0
        self.ended = False
        self.deleting = False
        self.scheduled_ns = 0
        self.initialized_ns = 0
        self.changed_seq = 0
        self.refused_seq = 0
        self.refusals = 0
        self.withheld_seq = 0
        self.allotted: dict[str, str] | None = None
        self.started_ns = 0
        self.stayed_seq = 0
        self.stayed_at = 0
        self.nominated = ""
        self.asked_seq = 0
        self.placed_node = ""
        self.placed_allotted: dict[str, str] | None = None
        self.placed_seq = 0
        self.placed_ns = 0
        self.attempts = 0
        self.tried_ns = 0
        self.tried_seq = 0
        self.saw = 0
        self.saw_quota = 0
        self.saw_reports: dict[str, int] = {}
        self.reasons: tuple[PluginReason, ...] = ()
        self.told = ""
        self.compared = False

    def held(self) -> Held | None:
        """Where the pod counts now: where it runs, else where we placed it unless that placement was refused."""
        if self.ended or self.ask is None:
            return None
        if self.node:
            at = self.scheduled_ns or self.node_since_ns
            return Held(self.node, self.ask, self.name, at, self.initialized_ns, self.deleting, self.allotted)
        if self.placed_seq > self.refused_seq:
            return Held(self.placed_node, self.ask, self.name, self.placed_ns, 0, self.deleting, self.placed_allotted)
        return None

    def is_asked_to_go(self) -> bool:
        """Whether an eviction that we asked for is on its way."""
        return self.asked_seq > self.stayed_seq

    def waiting(self, gateway_since: int) -> bool:
        """Whether the pod needs a node from us, whoever's profile it is.

        Args:
            gateway_since: `cluster` seq at which the gateway last started; what was withheld before may be tried again.
        """
        return (
            self.ask is not None
            and not self.node
            and not self.ended
            and not self.deleting
            and not self.ask.gated
            and self.placed_seq <= self.refused_seq
            and (self.withheld_seq == 0 or self.withheld_seq < gateway_since)
        )

    def encode(self, asks: dict[PodAsk, int]) -> list[Any]:
        """All facts as plain data; `asks` numbers the classes."""
        ask = -1 if self.ask is None else asks[self.ask]
        return [ask, *_plain(self), [list(reason) for reason in self.reasons]]

    @classmethod
    def decode(cls, data: list[Any], asks: list[PodAsk]) -> "PodFacts":
        """The inverse of `encode`."""
        if len(data) != len(_PLAIN) + 2:
            raise ValueError(f"a pod's facts are {len(_PLAIN) + 2} values, not {len(data)}")
        facts = cls.__new__(cls)
        deque(map(setattr, repeat(facts), _PLAIN, islice(data, 1, None)), 0)  # no loop: there are many pods
        ask, reasons = data[0], data[-1]
        facts.observed = None
        facts.ask = None if ask < 0 else asks[ask]
        facts.reasons = tuple((plugin, code) for plugin, code in reasons) if reasons else ()
        return facts


_PLAIN = tuple(name for name in PodFacts.__slots__ if name not in ("ask", "observed", "reasons"))
_plain = attrgetter(*_PLAIN)


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


def started_ns(pod: Pod) -> int:
    """When the pod started; 0 when it has not, or its time is unreadable."""
    return _readable_ns(pod.status.start_time) if pod.status.start_time else 0


def _readable_ns(text: str) -> int:
    try:
        return min(max(instant_ns(text), -_FURTHEST_NS), _FURTHEST_NS)
    except BadTime:
        return 0
