"""The plugins of one `schedulerName`, and what follows from their declarations."""

from collections.abc import Sequence

from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.post_filter import PostFilterPlugin
from services.scheduler.framework.reasons import FRAMEWORK_REASONS, UNIT_NOT_PLACED, ReasonTexts
from services.scheduler.state.cluster_event import ClusterEvent


class Scorer:
    """A plugin with the weight of its scores in a profile."""

    __slots__ = ("plugin", "weight")

    def __init__(self, plugin: Plugin, weight: int) -> None:
        self.plugin = plugin
        self.weight = weight


class Profile:
    """The plugins that evaluate the pods of one `schedulerName`.

    Attributes:
        filters: in the order in which they are called.
        scorers: plugins whose weighted scores are summed up.
        plugins: all of them, each once.
        post_filters: in the order in which they make capacity for refused pods.
        pre_bind: plugins that request what a pod needs before it is bound.
        grouping: plugins that name groups of pods to place as a whole, the first one that does so first.
        texts: texts of the reasons of its plugins and of the framework.
    """

    def __init__(
        self,
        name: str,
        filters: Sequence[Plugin],
        scorers: Sequence[Scorer],
        post_filters: Sequence[PostFilterPlugin] = (),
        pre_bind: Sequence[Plugin] = (),
        permit: Sequence[Plugin] = (),
    ) -> None:
        self.name = name
        self.filters = tuple(filters)
        self.scorers = tuple(scorers)
        self.post_filters = tuple(post_filters)
        self.pre_bind = tuple(pre_bind)
        self.plugins: tuple[Plugin, ...] = tuple(
            dict.fromkeys((*filters, *(scorer.plugin for scorer in scorers), *pre_bind, *permit))
        )
        self.grouping = tuple(plugin for plugin in permit if plugin.spec.groups_pods)
        self.texts = ReasonTexts(FRAMEWORK_REASONS, *(plugin.spec.reasons for plugin in self.plugins))
        self._queueing_hints = {
            (plugin.name, code): events
            for plugin in self.plugins
            for code, events in plugin.spec.queueing_hints.items()
        }
        # The unit is tried again with the pod that could not be placed, which waits for reasons of its own.
        self._queueing_hints |= {(plugin.name, UNIT_NOT_PLACED): frozenset() for plugin in self.grouping}
        self._requeues = frozenset((ClusterEvent.NODE_ADDED,)).union(*(plugin.spec.requeues for plugin in self.plugins))
        self._cross_node = frozenset(plugin.name for plugin in filters if plugin.cross_node)

    def reaches_far(self, reasons: Sequence[tuple[str, str]]) -> bool:
        """Returns True where a change on one node can end one of the reasons on another."""
        return any(plugin in self._cross_node for plugin, _ in reasons)

    def queueing_hints(self, reasons: Sequence[tuple[str, str]]) -> frozenset[ClusterEvent]:
        """The events that can end one of the (plugin, reason code) pairs.

        A new node always can, and what a plugin `requeues` for; an unknown reason is ended by any event.
        """
        every = frozenset(ClusterEvent)
        return self._requeues.union(*(self._queueing_hints.get(reason, every) for reason in reasons))
