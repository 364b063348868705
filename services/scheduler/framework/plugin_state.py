"""A plugin's working copy for one cycle, and what more some plugins' copies can do.

In a cycle, pods are placed one after the other; `place` moves a state on. All judge in integers as upstream has them.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.framework.score_terms import FitTerm, ScoreTerm
from services.scheduler.kernels.tiles import Bools, Int64, Rows
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import Assignment, PodRecord


class PluginState(Protocol):
    """A plugin's working copy for one cycle."""

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """Judge nodes for a class of pods.

        Returns:
            [rows], 0 where the node may take the pod, else a verdict that `Plugin.reasons` can read. None: all may.
        """
        ...

    def score(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """Prefer nodes: the higher the better. None: the plugin has no opinion on this class, which counts 0.

        Returns:
            [rows], 0..100, or any scale when the plugin's `normalize` brings it there; the caller's own, unless the plugin is static.
        """
        ...

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        """The verdict on one node, 0 where `filter` returns None: the same in plain integers, for after a placement."""
        ...

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The score of one node, 0 where `score` returns None."""
        ...


@runtime_checkable
class Placeable(PluginState, Protocol):
    """The state of a plugin that counts more of a cycle's placements than the room does."""

    def place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:
        """Count a pod of the class on the node, for the pods that come after it in the cycle."""
        ...


@runtime_checkable
class Preemptable(PluginState, Protocol):
    """The state of a plugin of which pods that run can be taken, to see what would fit without them. Of others they stay."""

    def move(self, pod_class: PodClass, row: int, *, terminating: bool, sign: int) -> None:
        """A pod that ran on the node when the cycle began is taken off it (-1), or put back (+1).

        Args:
            terminating: it is being deleted.
        """
        ...


@runtime_checkable
class Releasable(PluginState, Protocol):
    """The state of a plugin that gave running pods something, which would be free without them."""

    def release(self, assignment: Assignment, row: int, sign: int) -> None:
        """A pod that ran on the node when the cycle began is taken off it with all it has (-1), or put back (+1)."""
        ...


@runtime_checkable
class Selective(PluginState, Protocol):
    """The state of a plugin that has nothing to say of most classes, whatever happens in the cycle."""

    def applies_to(self, pod_class: PodClass) -> bool:
        """Whether it may say anything of the class, or give its pods anything, at any time of the cycle.

        Classes that differ in amounts alone are answered alike.
        """
        ...


@runtime_checkable
class Fitting(PluginState, Protocol):
    """The state of a plugin whose filter is arithmetic alone, and can be worked out with other plugins' scores."""

    def fit_term(self, pod_class: PodClass) -> FitTerm:
        """What `filter` is worked out from; one state of a profile has this."""
        ...


@runtime_checkable
class Summed(PluginState, Protocol):
    """The state of a plugin whose score is arithmetic alone, and can be worked out together with that of others."""

    def score_term(self, pod_class: PodClass) -> ScoreTerm | None:
        """What `score` is worked out from; None: it has to be asked for it."""
        ...


@runtime_checkable
class LookaheadScore(PluginState, Protocol):
    """The state of a plugin whose opinion changes with each pod on a node, by as much on every node.

    A state that is none, and has no opinion on a class, has none after any number of its pods.
    """

    def can_predict(self, pod_class: PodClass) -> bool:
        """Whether `after` can say, for the class and for those that differ from it in amounts alone."""
        ...

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> PluginState | None:
        """The state as if each node had taken one more pod of the class; `snapshot` is `CycleSnapshot.after`. None: it cannot say."""
        ...


@runtime_checkable
class Surprising(LookaheadScore, Protocol):
    """A foreseeing state that counts some pods otherwise than it foresees."""

    def matched_prediction(self) -> bool:
        """Whether the pod that was placed last changed its node as `after` would have said."""
        ...

    def count_predicted(self, pods: Sequence[PodRecord], pod_class: PodClass, rows: Sequence[int]) -> int:
        """How many equal pods, from the first on, would change their nodes as `after` says, each another node."""
        ...

    def place_all(self, pods: Sequence[PodRecord], pod_class: PodClass, rows: Sequence[int]) -> None:
        """Count the first of the pods that `count_predicted` was asked about last: no more than it said."""
        ...


@runtime_checkable
class CrossNodeState(PluginState, Protocol):
    """The state of a wide plugin: what it says of a node depends on pods on other nodes too.

    Its `score` is None: it scores by `scores`.
    """

    def revision(self, pod_class: PodClass) -> int:
        """A number that grows when a placement of the cycle may have changed `filter` or `scores` for the class."""
        ...

    def ignores_own_placements(self, pod_class: PodClass) -> bool:
        """Whether it makes no difference to what it says of the class where pods of the class go."""
        ...

    def scores(self, pod_class: PodClass, feasible: Bools) -> Int64 | None:
        """Prefer nodes, measured against the feasible ones. None: no opinion, which counts 0.

        Args:
            feasible: bool[all rows].

        Returns:
            [all rows], 0..100 where feasible, anything elsewhere.
        """
        ...


@runtime_checkable
class Reserver(PluginState, Protocol):
    """The state of a plugin that gives pods more of a node than room: CPUs, NUMA zones.

    Its filter may let a node pass that turns out to have nothing to give, and a placement may make it change its mind about a node that
    it refused.
    """

    def reserve(self, pod_class: PodClass, row: int) -> Mapping[str, str] | int:
        """What a pod of the class gets on the node, as annotations of the pod; or the verdict that refuses it after all."""
        ...

    def assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:
        """Count what a pod was given, by whichever profile's plugin, for the pods that come after it in the cycle."""
        ...
