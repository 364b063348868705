"""What a plugin is, and what a profile makes of its plugins.

A plugin judges all nodes at once. Its `filter` gives each node a verdict (0 lets it through), its `score` a number; both
in integers as upstream has them. In a round, pods are placed one after the other, so a plugin hands out a *trial*: its working
copy for the round, which `place` moves on. A plugin that keeps an account of its own over the nodes (measured load; later NUMA
zones, devices) declares a ledger, which the index keeps up to date.

Filters run in the profile's order; the first plugin that refuses a node is that node's reason. Source:
spec/scheduler-core.md 1.1, 1.5.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from services.scheduler.ask import HostPort, PodAsk
from services.scheduler.change import Change
from services.scheduler.kernels.rows import Rows, selected
from services.scheduler.nodes import NodeTable
from services.scheduler.parts import Part, Shortage
from services.scheduler.plugins.default_preemption import PreemptionArgs
from services.scheduler.pod_book import PodBook
from services.scheduler.pods import Held, PodFacts
from services.scheduler.reasons import Reason
from services.scheduler.surroundings import Surroundings
from shared.kube.node import Node, NodeMetric
from shared.kube.node_topology import NodeResourceTopology

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

MAX_SCORE = 100


class Normalize(Enum):
    """How raw scores become 0..100. Source: spec/scheduler-core.md 2, default normalization."""

    NONE = "they are 0..100 already"
    UP = "100 * score / highest; all 0 when the highest is 0"
    DOWN = "100 - that; all 100 when the highest is 0"
    OWN = "the plugin brings them there itself, knowing which nodes are feasible: a wide one, by `WideTrial.scores`"


class Room:
    """What is taken on the nodes in the course of a round: a copy that placements count in.

    Attributes:
        requested, scored, pods, ports: as in NodeTable.
        book: which classes of pods run where, as the round began.
        surroundings: what there is beyond nodes and pods.
    """

    def __init__(self, table: NodeTable, book: PodBook | None = None, surroundings: Surroundings | None = None) -> None:
        self.table = table
        self.book = book or PodBook()
        self.surroundings = surroundings or Surroundings()
        self.size = table.size
        self.requested: Int64 = table.requested[: self.size].copy(order="F")
        self.scored: Int64 = table.scored[: self.size].copy(order="F")
        self.pods: Int64 = table.pods[: self.size].copy()
        self.ports: dict[int, dict[HostPort, int]] = {row: dict(held) for row, held in table.ports.items()}

    def column(self, resource: str) -> int:
        """The resource's column in the arrays, -1 when no node had it as the round began."""
        column = self.table.columns.get(resource, -1)
        return column if column < self.requested.shape[1] else -1

    def which(self, rows: Rows) -> tuple[Int64, int]:
        """The rows as compiled passes take them."""
        return selected(rows, self.size)

    def after(self, ask: PodAsk) -> "Room":
        """The room as if each node had taken one more pod of the class; ports aside."""
        fuller = copy(self)
        fuller.requested, fuller.scored = self.requested.copy(order="F"), self.scored.copy(order="F")
        for column, size in self.table.vector(ask):
            if column < fuller.requested.shape[1]:
                fuller.requested[:, column] += size
        fuller.scored[:, 0] += ask.held.get("cpu", 0)
        fuller.scored[:, 1] += ask.held.get("memory", 0)
        fuller.pods = self.pods + 1
        return fuller

    def place(self, ask: PodAsk, row: int) -> None:
        """Count a pod on a node."""
        self.move(ask, row, 1)

    def place_all(self, ask: PodAsk, rows: Sequence[int]) -> None:
        """Count a pod on each of these nodes."""
        which = np.array(rows, np.intp)
        for column, size in self.table.vector(ask):
            if column < self.requested.shape[1]:
                self.requested[which, column] += size
        self.scored[which, 0] += ask.held.get("cpu", 0)
        self.scored[which, 1] += ask.held.get("memory", 0)
        self.pods[which] += 1
        for row in rows if ask.ports else ():
            self._hold_ports(ask, row, 1)

    def move(self, ask: PodAsk, row: int, sign: int) -> None:
        """Count a pod on a node (+1), or no more (-1)."""
        for column, size in self.table.vector(ask):
            if column < self.requested.shape[1]:  # else no node had the resource when the round began
                self.requested[row, column] += sign * size
        self.scored[row, 0] += sign * ask.held.get("cpu", 0)
        self.scored[row, 1] += sign * ask.held.get("memory", 0)
        self.pods[row] += sign
        if ask.ports:
            self._hold_ports(ask, row, sign)

    def _hold_ports(self, ask: PodAsk, row: int, sign: int) -> None:
        for port in ask.ports:
            held = self.ports.setdefault(row, {})
            held[port] = held.get(port, 0) + sign
            if not held[port]:
                del held[port]


class Trial(Protocol):
    """A plugin's working copy for one round."""

    def filter(self, ask: PodAsk, rows: Rows) -> Int64 | None:
        """Judge nodes for a class of pods.

        Returns:
            [rows], 0 where the node may take the pod, else a verdict that `Plugin.reasons` can read. None: all may.
        """
        ...

    def score(self, ask: PodAsk, rows: Rows) -> Int64 | None:
        """Prefer nodes: the higher the better. None: the plugin has no opinion on this class, which counts 0.

        Returns:
            [rows], 0..100, or any scale when the plugin's `normalize` brings it there; the caller's own, unless the plugin is static.
        """
        ...

    def filter_at(self, ask: PodAsk, row: int) -> int:
        """The verdict on one node, 0 where `filter` returns None: the same in plain integers, for after a placement."""
        ...

    def score_at(self, ask: PodAsk, row: int) -> int:
        """The score of one node, 0 where `score` returns None."""
        ...


@runtime_checkable
class Counting(Trial, Protocol):
    """The trial of a plugin that counts more of a round's placements than the room does."""

    def place(self, pod: PodFacts, ask: PodAsk, row: int) -> None:
        """Count a pod of the class on the node, for the pods that come after it in the round."""
        ...


@runtime_checkable
class Removing(Trial, Protocol):
    """The trial of a plugin of which pods that run can be taken, to see what would fit without them. Of others they stay."""

    def move(self, ask: PodAsk, row: int, *, ending: bool, sign: int) -> None:
        """A pod that ran on the node when the round began is taken off it (-1), or put back (+1).

        Args:
            ending: it is being deleted.
        """
        ...


@runtime_checkable
class Returning(Trial, Protocol):
    """The trial of a plugin that gave running pods something, which would be free without them."""

    def give_back(self, held: Held, row: int, sign: int) -> None:
        """A pod that ran on the node when the round began is taken off it with all it has (-1), or put back (+1)."""
        ...


@runtime_checkable
class Selective(Trial, Protocol):
    """The trial of a plugin that has nothing to say of most classes, whatever happens in the round."""

    def concerns(self, ask: PodAsk) -> bool:
        """Whether it may say anything of the class, or give its pods anything, at any time of the round.

        Classes that differ in amounts alone are answered alike.
        """
        ...


@runtime_checkable
class Fitting(Trial, Protocol):
    """The trial of a plugin whose filter is arithmetic alone, and can be worked out with other plugins' scores."""

    def shortage(self, ask: PodAsk) -> Shortage:
        """What `filter` is worked out from; one trial of a profile has this."""
        ...


@runtime_checkable
class Summed(Trial, Protocol):
    """The trial of a plugin whose score is arithmetic alone, and can be worked out together with that of others."""

    def part(self, ask: PodAsk) -> Part | None:
        """What `score` is worked out from; None: it has to be asked for it."""
        ...


@runtime_checkable
class Foreseeing(Trial, Protocol):
    """The trial of a plugin whose opinion changes with each pod on a node, by as much on every node.

    A trial that is none, and has no opinion on a class, has none after any number of its pods.
    """

    def foresees(self, ask: PodAsk) -> bool:
        """Whether `after` can say, for the class and for those that differ from it in amounts alone."""
        ...

    def after(self, ask: PodAsk, room: Room) -> Trial | None:
        """The trial as if each node had taken one more pod of the class; `room` is `Room.after`. None: it cannot say."""
        ...


@runtime_checkable
class Surprising(Foreseeing, Protocol):
    """A foreseeing trial that counts some pods otherwise than it foresees."""

    def as_foreseen(self) -> bool:
        """Whether the pod that was placed last changed its node as `after` would have said."""
        ...

    def foreseen_of(self, pods: Sequence[PodFacts], ask: PodAsk, rows: Sequence[int]) -> int:
        """How many equal pods, from the first on, would change their nodes as `after` says, each another node."""
        ...

    def place_all(self, pods: Sequence[PodFacts], ask: PodAsk, rows: Sequence[int]) -> None:
        """Count the first of the pods that `foreseen_of` was asked about last: no more than it said."""
        ...


@runtime_checkable
class WideTrial(Trial, Protocol):
    """The trial of a wide plugin: what it says of a node depends on pods on other nodes too.

    Its `score` is None: it scores by `scores`.
    """

    def revision(self, ask: PodAsk) -> int:
        """A number that grows when a placement of the round may have changed `filter` or `scores` for the class."""
        ...

    def indifferent(self, ask: PodAsk) -> bool:
        """Whether it makes no difference to what it says of the class where pods of the class go."""
        ...

    def scores(self, ask: PodAsk, feasible: Bools) -> Int64 | None:
        """Prefer nodes, measured against the feasible ones. None: no opinion, which counts 0.

        Args:
            feasible: bool[all rows].

        Returns:
            [all rows], 0..100 where feasible, anything elsewhere.
        """
        ...


@runtime_checkable
class Giver(Trial, Protocol):
    """The trial of a plugin that gives pods more of a node than room: CPUs, NUMA zones.

    Its filter may let a node pass that turns out to have nothing to give, and a placement may make it change its mind about a node that
    it refused.
    """

    def give(self, ask: PodAsk, row: int) -> Mapping[str, str] | int:
        """What a pod of the class gets on the node, as annotations of the pod; or the verdict that refuses it after all."""
        ...

    def hold(self, pod: PodFacts, ask: PodAsk, row: int, annotations: Mapping[str, str]) -> None:
        """Count what a pod was given, by whichever profile's plugin, for the pods that come after it in the round."""
        ...


@runtime_checkable
class Guide(Protocol):
    """A plugin that knows nodes which come before all scores."""

    def first_nodes(self, ask: PodAsk) -> Sequence[str]:
        """Names of nodes; the first of them that is feasible is taken."""
        ...


class Ledger(Protocol):
    """A plugin's account over the nodes: a function of the state, kept up to date by the index."""

    def set_node(self, row: int, node: Node | None) -> None:
        """The node in the row as observed, None when it is gone."""
        ...

    def set_metric(self, row: int, metric: NodeMetric | None, updated: str) -> None:
        """The newest report of the node in the row; `updated` is the last report time it or an earlier one stated."""
        ...

    def assign(self, row: int, uid: str, held: Held) -> None:
        """The pod counts on the node in the row from now on; it did not before."""
        ...

    def release(self, row: int, uid: str, held: Held) -> None:
        """The pod counts there no more."""
        ...


@runtime_checkable
class SelectiveLedger(Ledger, Protocol):
    """An account in which pods of most classes count for nothing."""

    def concerns(self, ask: PodAsk) -> bool:
        """Whether it is told of pods of the class; the same for as long as the account is kept."""
        ...


@runtime_checkable
class TopologyLedger(Ledger, Protocol):
    """An account that reads NodeResourceTopologies as well."""

    def set_topology(self, name: str, topology: NodeResourceTopology | None) -> None:
        """The NodeResourceTopology of that name, which is its node's; None when it is gone. It may come before the node."""
        ...


Kind = TypeVar("Kind")


def _methods_of(kind: Any) -> frozenset[str]:
    parts = (part for part in kind.__mro__ if getattr(part, "_is_protocol", False))
    return frozenset(name for part in parts for name in vars(part) if not name.startswith("_"))


def _has_methods_of(class_: Any, kind: Any) -> bool:
    return all(callable(getattr(class_, name, None)) for name in _methods(kind))


_methods: Callable[[Any], frozenset[str]] = cache(_methods_of)
_has_methods: Callable[[Any, Any], bool] = cache(_has_methods_of)


def is_kind(one: object, kind: type[Kind]) -> TypeGuard[Kind]:
    """Isinstance of a protocol that has methods alone, looked up once a class: isinstance itself takes 30 us, and its first look at a
    class half a millisecond.
    """
    return _has_methods(type(one), kind)


class Plugin(Protocol):
    """One of a profile's plugins. Stateless: what a round needs is in its trial, what outlasts it in its ledger.

    Attributes:
        name: as in KubeSchedulerConfiguration.
        static: its verdicts and scores depend on the node objects alone, so a placement changes none; of what a pod asks for it reads the names at most,
            not the amounts.
        wide: they depend on pods on other nodes too, so a placement may change any; its trials are WideTrials.
        normalize: how its raw scores become 0..100.
        cures: reason code -> changes that can end it; a refused pod is woken by these.
    """

    name: ClassVar[str]
    static: ClassVar[bool]
    wide: ClassVar[bool]
    normalize: ClassVar[Normalize]
    cures: ClassVar[Mapping[str, frozenset[Change]]]

    def new_ledger(self) -> Ledger | None:
        """An empty account for an index to keep up to date, if the plugin needs one."""
        ...

    def trial(self, room: Room, ledger: Ledger | None, now_ns: int) -> Trial:
        """A working copy for the round that is decided at `now_ns`; `ledger` is what `new_ledger` returned."""
        ...

    def reasons(self, ask: PodAsk, verdict: int) -> tuple[Reason, ...]:
        """What a verdict of this plugin means; several reasons where several hold."""
        ...

    def hopeless(self, ask: PodAsk, verdict: int) -> bool:
        """Whether no pod that went from the node would help: upstream's UnschedulableAndUnresolvable."""
        ...


class Scorer:
    """A plugin with the weight its scores have in a profile."""

    __slots__ = ("plugin", "weight")

    def __init__(self, plugin: Plugin, weight: int) -> None:
        self.plugin = plugin
        self.weight = weight


class Profile:
    """What one `schedulerName` stands for.

    Attributes:
        filters: in the order in which they are asked.
        scorers: plugins whose weighted scores are summed up.
        plugins: all of them, each once.
        preemption: how pods that fit nowhere make others give way; None: they do not.
    """

    def __init__(
        self,
        name: str,
        filters: Sequence[Plugin],
        scorers: Sequence[Scorer],
        preemption: PreemptionArgs | None = None,
    ) -> None:
        self.name = name
        self.filters = tuple(filters)
        self.scorers = tuple(scorers)
        self.preemption = preemption
        self.plugins: tuple[Plugin, ...] = tuple(dict.fromkeys((*filters, *(scorer.plugin for scorer in scorers))))
        self._cures = {
            (plugin.name, code): changes for plugin in self.plugins for code, changes in plugin.cures.items()
        }
        self._wide = frozenset(plugin.name for plugin in self.plugins if plugin.wide)

    def reaches_far(self, reasons: Sequence[tuple[str, str]]) -> bool:
        """Whether a change on one node can end one of the reasons on another."""
        return any(plugin in self._wide for plugin, _ in reasons)

    def cures(self, reasons: Sequence[tuple[str, str]]) -> frozenset[Change]:
        """The changes that can end one of the reasons. A new node always can; a reason nobody knows is ended by any."""
        every = frozenset(Change)
        return frozenset((Change.NODE_ADDED,)).union(*(self._cures.get(reason, every) for reason in reasons))


def normalized(raw: Int64, highest: int, how: Normalize) -> Int64:
    """Raw scores as 0..100, given the highest among the feasible nodes. Source: spec/scheduler-core.md 2."""
    if how is Normalize.NONE:
        return raw
    if highest == 0:
        return np.full_like(raw, MAX_SCORE if how is Normalize.DOWN else 0)
    scaled = raw * MAX_SCORE // highest
    return MAX_SCORE - scaled if how is Normalize.DOWN else scaled
