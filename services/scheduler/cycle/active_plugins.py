"""A profile's plugins with their states of one cycle, grouped by how they are called.

They are grouped once a cycle for all classes, and again for each set of request variants: most plugins do not apply to
most of them.
"""

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.framework.kernel_filter_and_score_terms import FitTerm, ScoreTerm
from services.scheduler.framework.plugin_base import MAX_SCORE, Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import Normalize
from services.scheduler.framework.profile import Profile
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE, NO_NODE, note_refusals
from services.scheduler.state.pod_equivalence_class import PodClass, variant_key

Filtering = tuple[int, Plugin, PluginCycleState]
"""(index among the profile's filters, plugin, state)."""
Scoring = tuple[Plugin, int, PluginCycleState]
"""(plugin, weight, state)."""


class ActivePlugins:
    """Plugins that apply to a class, grouped by how they are called.

    Attributes:
        snapshot: requested amounts of the nodes.
        alive: number of nodes; unrejected: int64[rows], FEASIBLE, or NO_NODE where the row is free.
        fit_filter: the filter that is arithmetic alone, with its index.
        filters: the other filters of one node at a time, in order; moving: those whose result a placement may change.
        recheck: indices of filters that may admit a node again after a placement.
        reserves: one of the plugins may reserve resources of the node.
        cross_node_filters, cross_node_scorers: plugins that read pods on other nodes; cross_node: the states of both.
        scorers: the other scoring plugins, with weights.
        constant: plugins with the same score on every node -> its share of a total; base: their sum.
        order: names of all scoring plugins, as records list them.
        preferring: plugins that name preferred nodes.
    """

    def __init__(
        self, profile: Profile, plugin_states: Mapping[Plugin, PluginCycleState], snapshot: CycleSnapshot
    ) -> None:
        self.profile = profile
        self.snapshot = snapshot
        alive = snapshot.table.alive[: snapshot.size]
        self.alive = int(alive.sum())
        self.unrejected: Int64 = np.where(alive, FEASIBLE, NO_NODE)
        filters = [(index, plugin, plugin_states[plugin]) for index, plugin in enumerate(profile.filters)]
        self.fit_filter: tuple[int, PluginCycleState] | None = None
        self.filters: list[Filtering] = []
        for index, plugin, state in filters:
            if plugin.spec.fit_term:
                self.fit_filter = index, state
            elif not plugin.cross_node:
                self.filters.append((index, plugin, state))
        self.cross_node_filters: list[Filtering] = [entry for entry in filters if entry[1].cross_node]
        self.moving: list[Filtering] = [entry for entry in self.filters if not entry[1].node_only]
        self.recheck = frozenset(
            index for index, plugin, _ in self.filters if plugin.spec.reserves or plugin.spec.admits_later
        )
        self.reserves = any(plugin.spec.reserves for _, plugin, _ in filters)
        self.preferring = [plugin for plugin in profile.plugins if plugin.spec.prefers_nodes]
        scorers = [(scorer.plugin, scorer.weight, plugin_states[scorer.plugin]) for scorer in profile.scorers]
        self.scorers: list[Scoring] = [entry for entry in scorers if not entry[0].cross_node]
        self.cross_node_scorers = [(plugin, weight, state) for plugin, weight, state in scorers if plugin.cross_node]
        self.cross_node = [state for plugin, state in plugin_states.items() if plugin.cross_node]
        self.order = [plugin.name for plugin, *_ in (*self.scorers, *self.cross_node_scorers)]
        self.constant: dict[str, int] = {}
        self.base = 0
        self._by_variant: dict[bytes, ActivePlugins] = {}

    def fit_term(self, pod_class: PodClass) -> tuple[int, FitTerm] | None:
        """Returns the term of `fit_filter` for the class, with its index."""
        return None if self.fit_filter is None else (self.fit_filter[0], self.fit_filter[1].fit_term(pod_class))

    def parts(self, pod_class: PodClass) -> tuple[list[Scoring], list[tuple[int, ScoreTerm]], list[Scoring]]:
        """Returns the plugins with a score term for the class, (weight, term) of each, and the plugins without one."""
        summed_scorers: list[Scoring] = []
        parts: list[tuple[int, ScoreTerm]] = []
        others: list[Scoring] = []
        for scoring in self.scorers:
            _, weight, state = scoring
            part = state.score_term(pod_class)
            if part is None:
                others.append(scoring)
            else:
                summed_scorers.append(scoring)
                parts.append((weight, part))
        return summed_scorers, parts, others

    def of(self, pod_class: PodClass) -> "ActivePlugins":
        """Returns the plugins that may apply to the class or to one of its request variants."""
        key = variant_key(pod_class)
        active = self._by_variant.get(key)
        if active is None:
            active = self._by_variant[key] = self._narrowed(pod_class)
        return active

    def _narrowed(self, pod_class: PodClass) -> "ActivePlugins":
        every = slice(0, self.snapshot.size)
        active = copy(self)
        active._by_variant = {}  # noqa: SLF001  with the shared one it would hold itself
        active.filters = [entry for entry in self.filters if _filters(pod_class, entry[1], entry[2], every)]
        active.moving = [entry for entry in active.filters if not entry[1].node_only]
        active.cross_node_filters = [entry for entry in self.cross_node_filters if entry[2].applies_to(pod_class)]
        filters = (*active.filters, *active.cross_node_filters)
        active.reserves = any(plugin.spec.reserves for _, plugin, _ in filters)
        active.cross_node_scorers = [entry for entry in self.cross_node_scorers if entry[2].applies_to(pod_class)]
        active.cross_node = [state for state in self.cross_node if state.applies_to(pod_class)]
        active.scorers, active.constant = [], {}
        for plugin, weight, state in self.scorers:
            if not plugin.node_only:
                if state.scores_class(pod_class):
                    active.scorers.append((plugin, weight, state))
                continue
            scores = state.score(pod_class, every)
            if scores is None:
                continue
            if scores.any():
                active.scorers.append((plugin, weight, state))
            else:
                active.constant[plugin.name] = (MAX_SCORE if plugin.normalize is Normalize.DOWN else 0) * weight
        active.base = sum(active.constant.values())
        return active


def _filters(pod_class: PodClass, plugin: Plugin, state: PluginCycleState, every: Rows) -> bool:
    return state.filter(pod_class, every) is not None if plugin.node_only else state.applies_to(pod_class)


def apply_filters(pod_class: PodClass, by: Int64, result: Int64, filters: Sequence[Filtering], rows: Rows) -> None:
    """Runs filters.

    `by` and `result`, [rows], get the first filter of the profile that rejects the node, and its result.
    """
    for index, _, state in filters:
        results = state.filter(pod_class, rows)
        if results is not None:
            note_refusals(by, result, results, index)
