"""A profile's plugins with their working copies of one cycle, sorted by what the judge has to do with each.

Once a cycle for all classes; and once for classes that differ in amounts alone: of most of these, most plugins have nothing to say.
"""

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.framework.plugin import MAX_SCORE, Plugin
from services.scheduler.framework.plugin_state import PluginState
from services.scheduler.framework.profile import Profile
from services.scheduler.framework.score_terms import FitTerm, ScoreTerm
from services.scheduler.framework.spec import Normalize
from services.scheduler.kernels.select import FEASIBLE, NO_NODE, note_refusals
from services.scheduler.kernels.tiles import Int64, Rows
from services.scheduler.state.pod_class import PodClass, variant_key

Filtering = tuple[int, Plugin, PluginState]
"""(place among the profile's filters, plugin, working copy)."""
Scoring = tuple[Plugin, int, PluginState]
"""(plugin, weight, working copy)."""


class ActivePlugins:
    """Who judges.

    Attributes:
        snapshot: what is taken on the nodes.
        alive: how many nodes there are; nobody: int64[rows], FEASIBLE, or NO_NODE where the row is free.
        fitting: the filter that is arithmetic alone, with its place.
        filters: the others that judge a node by itself, in order; moving: those of them whose verdict a placement may change.
        fickle: places of those that may think better of a node after a placement.
        gives: whether one of them may give pods something.
        wide_filters, wide_scorers: those that look beyond the node; wide: the working copies of both.
        scorers: the others, with weights.
        flat: of those, the ones that say the same of every node: what that adds to a total, by name; base: their sum.
        order: names of all that score, as records list them.
        guides: those that know nodes which come first.
    """

    def __init__(self, profile: Profile, plugin_states: Mapping[Plugin, PluginState], snapshot: CycleSnapshot) -> None:
        self.profile = profile
        self.snapshot = snapshot
        alive = snapshot.table.alive[: snapshot.size]
        self.alive = int(alive.sum())
        self.nobody: Int64 = np.where(alive, FEASIBLE, NO_NODE)
        filters = [(index, plugin, plugin_states[plugin]) for index, plugin in enumerate(profile.filters)]
        self.fitting: tuple[int, PluginState] | None = None
        self.filters: list[Filtering] = []
        for index, plugin, state in filters:
            if plugin.spec.fit_term:
                self.fitting = index, state
            elif not plugin.cross_node:
                self.filters.append((index, plugin, state))
        self.wide_filters: list[Filtering] = [entry for entry in filters if entry[1].cross_node]
        self.moving: list[Filtering] = [entry for entry in self.filters if not entry[1].node_only]
        self.fickle = frozenset(index for index, plugin, _ in self.filters if plugin.spec.reserves)
        self.gives = bool(self.fickle)
        self.guides = [plugin for plugin in profile.plugins if plugin.spec.prefers_nodes]
        scorers = [(scorer.plugin, scorer.weight, plugin_states[scorer.plugin]) for scorer in profile.scorers]
        self.scorers: list[Scoring] = [entry for entry in scorers if not entry[0].cross_node]
        self.wide_scorers = [(plugin, weight, state) for plugin, weight, state in scorers if plugin.cross_node]
        self.wide = [state for plugin, state in plugin_states.items() if plugin.cross_node]
        self.order = [plugin.name for plugin, *_ in (*self.scorers, *self.wide_scorers)]
        self.flat: dict[str, int] = {}
        self.base = 0
        self._by_kin: dict[bytes, ActivePlugins] = {}

    def fit_term(self, pod_class: PodClass) -> tuple[int, FitTerm] | None:
        """What `fitting` asks for the class, with its place."""
        return None if self.fitting is None else (self.fitting[0], self.fitting[1].fit_term(pod_class))

    def parts(self, pod_class: PodClass) -> tuple[list[Scoring], list[tuple[int, ScoreTerm]], list[Scoring]]:
        """Who scores the class by arithmetic alone, (weight, what that is worked out from) of each of these, and who has to be asked."""
        summing: list[Scoring] = []
        parts: list[tuple[int, ScoreTerm]] = []
        others: list[Scoring] = []
        for scoring in self.scorers:
            _, weight, state = scoring
            part = state.score_term(pod_class)
            if part is None:
                others.append(scoring)
            else:
                summing.append(scoring)
                parts.append((weight, part))
        return summing, parts, others

    def of(self, pod_class: PodClass) -> "ActivePlugins":
        """Those of them that may have something to say of the class, or of one that differs from it in amounts alone."""
        key = variant_key(pod_class)
        active = self._by_kin.get(key)
        if active is None:
            active = self._by_kin[key] = self._narrowed(pod_class)
        return active

    def _narrowed(self, pod_class: PodClass) -> "ActivePlugins":
        every = slice(0, self.snapshot.size)
        active = copy(self)
        active.filters = [entry for entry in self.filters if _filters(pod_class, entry[1], entry[2], every)]
        active.moving = [entry for entry in active.filters if not entry[1].node_only]
        active.gives = any(plugin.spec.reserves for _, plugin, _ in active.filters)
        active.wide_filters = [entry for entry in self.wide_filters if entry[2].applies_to(pod_class)]
        active.wide_scorers = [entry for entry in self.wide_scorers if entry[2].applies_to(pod_class)]
        active.wide = [state for state in self.wide if state.applies_to(pod_class)]
        active.scorers, active.flat = [], {}
        for plugin, weight, state in self.scorers:
            if not plugin.node_only:
                active.scorers.append((plugin, weight, state))
                continue
            scores = state.score(pod_class, every)
            if scores is None:
                continue
            if scores.any():
                active.scorers.append((plugin, weight, state))
            else:
                active.flat[plugin.name] = (MAX_SCORE if plugin.normalize is Normalize.DOWN else 0) * weight
        active.base = sum(active.flat.values())
        return active


def _filters(pod_class: PodClass, plugin: Plugin, state: PluginState, every: Rows) -> bool:
    return state.filter(pod_class, every) is not None if plugin.node_only else state.applies_to(pod_class)


def refuse_by(pod_class: PodClass, by: Int64, result: Int64, filters: Sequence[Filtering], rows: Rows) -> None:
    """Ask filters; the first of the profile that refuses a node is noted for it. by, verdict: [rows]."""
    for index, _, state in filters:
        results = state.filter(pod_class, rows)
        if results is not None:
            note_refusals(by, result, results, index)
