"""What a plugin is, and what a profile makes of its plugins.

A plugin judges all nodes at once. Its `filter` gives each node a verdict (0 lets it through), its `score` a number; both
in integers as upstream has them. In a cycle, pods are placed one after the other, so a plugin hands out a *state*: its working
copy for the cycle, which `place` moves on. A plugin that keeps an account of its own over the nodes (measured load, NUMA
zones) declares a ledger, which the index keeps up to date.

Filters run in the profile's order; the first plugin that refuses a node is that node's reason. Source:
spec/scheduler-core.md 1.1, 1.5.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_state import PluginState
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.tiles import Int64
from services.scheduler.plugins.default_preemption.args import PreemptionArgs
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.pod_class import PodClass

MAX_SCORE = 100


class Normalize(Enum):
    """How raw scores become 0..100. Source: spec/scheduler-core.md 2, default normalization."""

    NONE = "they are 0..100 already"
    UP = "100 * score / highest; all 0 when the highest is 0"
    DOWN = "100 - that; all 100 when the highest is 0"
    OWN = (
        "the plugin brings them there itself, knowing which nodes are feasible: a wide one, by `CrossNodeState.scores`"
    )


class Plugin(Protocol):
    """One of a profile's plugins. Stateless: what a cycle needs is in its state, what outlasts it in its ledger.

    Attributes:
        name: as in KubeSchedulerConfiguration.
        static: its verdicts and scores depend on the node objects alone, so a placement changes none; of what a pod asks for it reads the names at most,
            not the amounts.
        wide: they depend on pods on other nodes too, so a placement may change any; its plugin_states are CrossNodeStates.
        normalize: how its raw scores become 0..100.
        queueing_hints: reason code -> changes that can end it; a refused pod is woken by these.
    """

    name: ClassVar[str]
    node_only: ClassVar[bool]
    cross_node: ClassVar[bool]
    normalize: ClassVar[Normalize]
    queueing_hints: ClassVar[Mapping[str, frozenset[ClusterEvent]]]

    def new_cache(self) -> PluginCache | None:
        """An empty account for an index to keep up to date, if the plugin needs one."""
        ...

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginState:
        """A working copy for the cycle that is decided at `now_ns`; `plugin_cache` is what `new_cache` returned."""
        ...

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:
        """What a verdict of this plugin means; several reasons where several hold."""
        ...

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:
        """Whether no pod that went from the node would help: upstream's UnschedulableAndUnresolvable."""
        ...


@runtime_checkable
class PreferredNodes(Protocol):
    """A plugin that knows nodes which come before all scores."""

    def preferred_nodes(self, pod_class: PodClass) -> Sequence[str]:
        """Names of nodes; the first of them that is feasible is taken."""
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
        self._queueing_hints = {
            (plugin.name, code): changes for plugin in self.plugins for code, changes in plugin.queueing_hints.items()
        }
        self._wide = frozenset(plugin.name for plugin in self.plugins if plugin.cross_node)

    def reaches_far(self, reasons: Sequence[tuple[str, str]]) -> bool:
        """Whether a change on one node can end one of the reasons on another."""
        return any(plugin in self._wide for plugin, _ in reasons)

    def queueing_hints(self, reasons: Sequence[tuple[str, str]]) -> frozenset[ClusterEvent]:
        """The changes that can end one of the reasons. A new node always can; a reason nobody knows is ended by any."""
        every = frozenset(ClusterEvent)
        return frozenset((ClusterEvent.NODE_ADDED,)).union(
            *(self._queueing_hints.get(reason, every) for reason in reasons)
        )


def normalized(raw: Int64, highest: int, how: Normalize) -> Int64:
    """Raw scores as 0..100, given the highest among the feasible nodes. Source: spec/scheduler-core.md 2."""
    if how is Normalize.NONE:
        return raw
    if highest == 0:
        return np.full_like(raw, MAX_SCORE if how is Normalize.DOWN else 0)
    scaled = raw * MAX_SCORE // highest
    return MAX_SCORE - scaled if how is Normalize.DOWN else scaled
