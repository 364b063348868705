"""A profile's plugins with their working copies of one cycle, sorted by what the judge has to do with each.

Once a cycle for all classes; and once for classes that differ in amounts alone: of most of these, most plugins have nothing to say.
"""

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np

from services.scheduler.cycle.cycle_snapshot import Room
from services.scheduler.framework.plugin import MAX_SCORE, Normalize, Plugin, PreferredNodes, Profile
from services.scheduler.framework.plugin_state import CrossNodeState, Fitting, PluginState, Reserver, Selective, Summed
from services.scheduler.framework.protocols import is_kind
from services.scheduler.framework.score_terms import Part, Shortage
from services.scheduler.kernels.select import FEASIBLE, NO_NODE, note_refusals
from services.scheduler.kernels.tiles import Int64, Rows
from services.scheduler.state.pod_class import PodAsk, kin

Filtering = tuple[int, Plugin, PluginState]
"""(place among the profile's filters, plugin, working copy)."""
Scoring = tuple[Plugin, int, PluginState]
"""(plugin, weight, working copy)."""


class Panel:
    """Who judges.

    Attributes:
        room: what is taken on the nodes.
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

    def __init__(self, profile: Profile, plugin_states: Mapping[Plugin, PluginState], room: Room) -> None:
        self.profile = profile
        self.room = room
        alive = room.table.alive[: room.size]
        self.alive = int(alive.sum())
        self.nobody: Int64 = np.where(alive, FEASIBLE, NO_NODE)
        filters = [(index, plugin, plugin_states[plugin]) for index, plugin in enumerate(profile.filters)]
        self.fitting: tuple[int, Fitting] | None = None
        self.filters: list[Filtering] = []
        for index, plugin, state in filters:
            if is_kind(state, Fitting):
                self.fitting = index, state
            elif not plugin.cross_node:
                self.filters.append((index, plugin, state))
        self.wide_filters: list[Filtering] = [entry for entry in filters if entry[1].cross_node]
        self.moving: list[Filtering] = [entry for entry in self.filters if not entry[1].node_only]
        self.fickle = frozenset(index for index, _, state in self.filters if is_kind(state, Reserver))
        self.gives = bool(self.fickle)
        self.guides = [plugin for plugin in profile.plugins if is_kind(plugin, PreferredNodes)]
        scorers = [(scorer.plugin, scorer.weight, plugin_states[scorer.plugin]) for scorer in profile.scorers]
        self.scorers: list[Scoring] = [entry for entry in scorers if not entry[0].cross_node]
        self.wide_scorers = [
            (plugin, weight, state)
            for plugin, weight, state in scorers
            if plugin.cross_node and is_kind(state, CrossNodeState)
        ]
        self.wide = [
            state for plugin, state in plugin_states.items() if plugin.cross_node and is_kind(state, CrossNodeState)
        ]
        self.order = [plugin.name for plugin, *_ in (*self.scorers, *self.wide_scorers)]
        self.flat: dict[str, int] = {}
        self.base = 0
        self._by_kin: dict[bytes, Panel] = {}

    def fit_term(self, ask: PodAsk) -> tuple[int, Shortage] | None:
        """What `fitting` asks for the class, with its place."""
        return None if self.fitting is None else (self.fitting[0], self.fitting[1].fit_term(ask))

    def parts(self, ask: PodAsk) -> tuple[list[Scoring], list[tuple[int, Part]], list[Scoring]]:
        """Who scores the class by arithmetic alone, (weight, what that is worked out from) of each of these, and who has to be asked."""
        summing: list[Scoring] = []
        parts: list[tuple[int, Part]] = []
        others: list[Scoring] = []
        for scoring in self.scorers:
            _, weight, state = scoring
            part = state.score_term(ask) if is_kind(state, Summed) else None
            if part is None:
                others.append(scoring)
            else:
                summing.append(scoring)
                parts.append((weight, part))
        return summing, parts, others

    def of(self, ask: PodAsk) -> "Panel":
        """Those of them that may have something to say of the class, or of one that differs from it in amounts alone."""
        key = kin(ask)
        panel = self._by_kin.get(key)
        if panel is None:
            panel = self._by_kin[key] = self._narrowed(ask)
        return panel

    def _narrowed(self, ask: PodAsk) -> "Panel":
        every = slice(0, self.room.size)
        panel = copy(self)
        panel.filters = [entry for entry in self.filters if _filters(ask, entry[1], entry[2], every)]
        panel.moving = [entry for entry in panel.filters if not entry[1].node_only]
        panel.gives = any(is_kind(state, Reserver) for _, _, state in panel.filters)
        panel.wide_filters = [entry for entry in self.wide_filters if _concerns(ask, entry[2])]
        panel.wide_scorers = [entry for entry in self.wide_scorers if _concerns(ask, entry[2])]
        panel.wide = [state for state in self.wide if _concerns(ask, state)]
        panel.scorers, panel.flat = [], {}
        for plugin, weight, state in self.scorers:
            if not plugin.node_only:
                panel.scorers.append((plugin, weight, state))
                continue
            scores = state.score(ask, every)
            if scores is None:
                continue
            if scores.any():
                panel.scorers.append((plugin, weight, state))
            else:
                panel.flat[plugin.name] = (MAX_SCORE if plugin.normalize is Normalize.DOWN else 0) * weight
        panel.base = sum(panel.flat.values())
        return panel


def _concerns(ask: PodAsk, state: PluginState) -> bool:
    return not is_kind(state, Selective) or state.applies_to(ask)


def _filters(ask: PodAsk, plugin: Plugin, state: PluginState, every: Rows) -> bool:
    return state.filter(ask, every) is not None if plugin.node_only else _concerns(ask, state)


def refuse_by(ask: PodAsk, by: Int64, verdict: Int64, filters: Sequence[Filtering], rows: Rows) -> None:
    """Ask filters; the first of the profile that refuses a node is noted for it. by, verdict: [rows]."""
    for index, _, state in filters:
        verdicts = state.filter(ask, rows)
        if verdicts is not None:
            note_refusals(by, verdict, verdicts, index)
