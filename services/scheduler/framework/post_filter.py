"""PostFilter: plugins that make capacity for a refused pod, by evicting others.

A pod is refused by the nodes, when none passes all filters, or by its quota, when the ledger refuses to charge its
placement. Both belong to the cycle: the State stays at the positions that the cycle records until the ledger has
responded. The plugins of a profile run in their order, and the first result ends the search.

Source: kube-scheduler's framework; spec/scheduler-core.md 1.8.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple, NewType, Protocol

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.cluster_cache import ClusterCache
from services.scheduler.framework.nominations_and_victims_of_cycle import CyclePreemptions, Nomination
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from shared.events.scheduling import QuotaShort

Mark = NewType("Mark", int)
"""A point of the cycle's steps to which they can be undone: their number."""


class NodeSteps(Protocol):
    """The nodes with the steps of the cycle, on which a plugin tries removals: CycleTransaction."""

    def mark(self) -> Mark:
        """Returns the present point of the steps."""

    def undo(self, mark: Mark) -> None:
        """Undoes all steps behind the mark."""

    def remove(self, assignment: Assignment, row: int) -> None:
        """Removes a pod from its node."""

    def put_back(self, assignment: Assignment, row: int) -> None:
        """Puts a removed pod back."""


class RefusedByNodes(NamedTuple):
    """A pod for which no node passes all filters.

    Attributes:
        pod_hash: of its uid, for the order of nodes.
        resolvable: returns the rows of the nodes that the eviction of a pod could make feasible.
        fits: returns True when every filter admits the pod to the node of a row in its present state.
        steps: for trying; what is tried has to be undone.
    """

    pod: PodRecord
    pod_class: PodClass
    pod_hash: np.uint64
    resolvable: Callable[[], NDArray[np.intp]]
    fits: Callable[[int], bool]
    steps: NodeSteps


class RefusedByQuota(NamedTuple):
    """A pod with a node whose charge the ledger refused.

    Attributes:
        node: that the cycle found for it.
    """

    pod: PodRecord
    pod_class: PodClass
    node: str
    short: QuotaShort


class PostFilterCycle(NamedTuple):
    """The part of a cycle that PostFilter plugins read.

    Attributes:
        cache: settled.
        nominated: uid -> a waiting pod that an earlier cycle has nominated.
        preemptions: of this cycle so far.
        placed: returns the pods that this cycle has placed so far, each with its class.
    """

    cache: ClusterCache
    nominated: Mapping[str, PodRecord]
    preemptions: CyclePreemptions
    placed: Callable[[], Iterable[tuple[PodRecord, PodClass]]]


class PostFilter:
    """A PostFilter plugin within one cycle. The defaults do nothing."""

    def after_filters(self, refused: RefusedByNodes) -> Nomination | None:  # noqa: ARG002
        """Makes capacity on a node; None where that does not help, or is left to a later attempt."""
        return None

    def after_charge(self, refused: RefusedByQuota) -> Nomination | None:  # noqa: ARG002
        """Makes capacity in the quota of a pod; None where that does not help."""
        return None

    def waits_for_node(self, pod: PodRecord, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Reports whether the node that a pod is nominated for may get room yet: pods leave it, or it was not searched."""
        return False

    def waits_for_quota(self, pod: PodRecord) -> bool:  # noqa: ARG002
        """Reports whether the quota of a nominated pod may get room yet: pods of lower priority leave it."""
        return False


class PostFilterPlugin(ABC):
    """A plugin at the PostFilter point. It keeps no data of a cycle: that is in its PostFilter."""

    spec: ClassVar[PluginSpec]

    @abstractmethod
    def new_post_filter(self, cycle: PostFilterCycle) -> PostFilter:
        """Makes the plugin for one cycle."""


class PostFilters:
    """The PostFilter plugins of all profiles in one cycle."""

    def __init__(self, cycle: PostFilterCycle) -> None:
        self._cycle = cycle
        self._made: dict[PostFilterPlugin, PostFilter] = {}

    def after_filters(self, plugins: Sequence[PostFilterPlugin], refused: RefusedByNodes) -> Nomination | None:
        """Returns the nomination by the first plugin that makes capacity on a node, counted in the cycle.

        A pod for which none does loses its nomination, unless pods still leave its node: what is kept for it would be
        kept in vain, and two pods of equal priority could keep it from each other for ever.
        """
        found = self._counted(each.after_filters(refused) for each in self._of(plugins))
        pod, pod_class = refused.pod, refused.pod_class
        if found is None and not any(each.waits_for_node(pod, pod_class) for each in self._of(plugins)):
            self._lose(pod)
        return found

    def after_charge(self, plugins: Sequence[PostFilterPlugin], refused: RefusedByQuota) -> Nomination | None:
        """Returns the nomination by the first plugin that makes capacity in the quota, counted in the cycle; a pod for
        which none does loses the one it has, as after the filters.
        """
        found = self._counted(each.after_charge(refused) for each in self._of(plugins))
        if found is None and not any(each.waits_for_quota(refused.pod) for each in self._of(plugins)):
            self._lose(refused.pod)
        return found

    def _of(self, plugins: Sequence[PostFilterPlugin]) -> Iterable[PostFilter]:
        for plugin in plugins:
            made = self._made.get(plugin)
            if made is None:
                made = self._made[plugin] = plugin.new_post_filter(self._cycle)
            yield made

    def _counted(self, made: Iterable[Nomination | None]) -> Nomination | None:
        first = next((nomination for nomination in made if nomination is not None), None)
        return None if first is None else self._cycle.preemptions.nominate(first)

    def _lose(self, pod: PodRecord) -> None:
        if self._cycle.preemptions.node_of(pod):
            self._cycle.preemptions.lose(pod)
