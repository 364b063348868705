"""A plugin's working copy for one cycle, and what more some plugins' copies can do.

In a cycle, pods are placed one after the other; `place` moves a trial on. All judge in integers as upstream has them.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from services.scheduler.cycle.cycle_snapshot import Room
from services.scheduler.framework.score_terms import Part, Shortage
from services.scheduler.kernels.tiles import Bools, Int64, Rows
from services.scheduler.state.pod_class import PodAsk
from services.scheduler.state.pod_record import Held, PodFacts


class Trial(Protocol):
    """A plugin's working copy for one cycle."""

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
    """The trial of a plugin that counts more of a cycle's placements than the room does."""

    def place(self, pod: PodFacts, ask: PodAsk, row: int) -> None:
        """Count a pod of the class on the node, for the pods that come after it in the cycle."""
        ...


@runtime_checkable
class Removing(Trial, Protocol):
    """The trial of a plugin of which pods that run can be taken, to see what would fit without them. Of others they stay."""

    def move(self, ask: PodAsk, row: int, *, ending: bool, sign: int) -> None:
        """A pod that ran on the node when the cycle began is taken off it (-1), or put back (+1).

        Args:
            ending: it is being deleted.
        """
        ...


@runtime_checkable
class Returning(Trial, Protocol):
    """The trial of a plugin that gave running pods something, which would be free without them."""

    def give_back(self, held: Held, row: int, sign: int) -> None:
        """A pod that ran on the node when the cycle began is taken off it with all it has (-1), or put back (+1)."""
        ...


@runtime_checkable
class Selective(Trial, Protocol):
    """The trial of a plugin that has nothing to say of most classes, whatever happens in the cycle."""

    def concerns(self, ask: PodAsk) -> bool:
        """Whether it may say anything of the class, or give its pods anything, at any time of the cycle.

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
        """A number that grows when a placement of the cycle may have changed `filter` or `scores` for the class."""
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
        """Count what a pod was given, by whichever profile's plugin, for the pods that come after it in the cycle."""
        ...
