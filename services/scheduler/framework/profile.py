"""The plugins of one `schedulerName`, and what follows from their declarations."""

from collections.abc import Sequence

from services.scheduler.framework.plugin import Plugin, PostFilterPlugin
from services.scheduler.framework.reasons import FRAMEWORK_REASONS, ReasonTexts
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
        preparing: those of them that request something before a pod is bound.
        preemption: bounds the search for preemption victims; None: pods of the profile preempt none.
        texts: texts of the reasons of its plugins and of the framework.
    """

    def __init__(
        self,
        name: str,
        filters: Sequence[Plugin],
        scorers: Sequence[Scorer],
        preemption: PostFilterPlugin | None = None,
    ) -> None:
        self.name = name
        self.filters = tuple(filters)
        self.scorers = tuple(scorers)
        self.preemption = preemption
        self.plugins: tuple[Plugin, ...] = tuple(dict.fromkeys((*filters, *(scorer.plugin for scorer in scorers))))
        self.preparing = tuple(plugin for plugin in self.plugins if plugin.spec.prepares)
        self.texts = ReasonTexts(FRAMEWORK_REASONS, *(plugin.spec.reasons for plugin in self.plugins))
        self._queueing_hints = {
            (plugin.name, code): events
            for plugin in self.plugins
            for code, events in plugin.spec.queueing_hints.items()
        }
        self._cross_node = frozenset(plugin.name for plugin in self.plugins if plugin.cross_node)

    def reaches_far(self, reasons: Sequence[tuple[str, str]]) -> bool:
        """Returns True where a change on one node can end one of the reasons on another."""
        return any(plugin in self._cross_node for plugin, _ in reasons)

    def queueing_hints(self, reasons: Sequence[tuple[str, str]]) -> frozenset[ClusterEvent]:
        """The events that can end one of the (plugin, reason code) pairs.

        A new node always can; an unknown reason is ended by any event.
        """
        every = frozenset(ClusterEvent)
        return frozenset((ClusterEvent.NODE_ADDED,)).union(
            *(self._queueing_hints.get(reason, every) for reason in reasons)
        )
