"""A profile's plugins with their working copies of one cycle, sorted by what the judge has to do with each.

Once a cycle for all classes; and once for classes that differ in amounts alone: of most of these, most plugins have nothing to say.
"""

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np

from services.scheduler.cycle.cycle_snapshot import Room
from services.scheduler.framework.plugin import MAX_SCORE, Guide, Normalize, Plugin, Profile
from services.scheduler.framework.plugin_state import Fitting, Giver, Selective, Summed, Trial, WideTrial
from services.scheduler.framework.protocols import is_kind
from services.scheduler.framework.score_terms import Part, Shortage
from services.scheduler.kernels.select import FEASIBLE, NO_NODE, note_refusals
from services.scheduler.kernels.tiles import Int64, Rows
from services.scheduler.state.pod_class import PodAsk, kin

Filtering = tuple[int, Plugin, Trial]
"""(place among the profile's filters, plugin, working copy)."""
Scoring = tuple[Plugin, int, Trial]
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

    def __init__(self, profile: Profile, trials: Mapping[Plugin, Trial], room: Room) -> None:
        self.profile = profile
        self.room = room
        alive = room.table.alive[: room.size]
        self.alive = int(alive.sum())
        self.nobody: Int64 = np.where(alive, FEASIBLE, NO_NODE)
        filters = [(index, plugin, trials[plugin]) for index, plugin in enumerate(profile.filters)]
        self.fitting: tuple[int, Fitting] | None = None
        self.filters: list[Filtering] = []
        for index, plugin, trial in filters:
            if is_kind(trial, Fitting):
                self.fitting = index, trial
            elif not plugin.wide:
                self.filters.append((index, plugin, trial))
        self.wide_filters: list[Filtering] = [entry for entry in filters if entry[1].wide]
        self.moving: list[Filtering] = [entry for entry in self.filters if not entry[1].static]
        self.fickle = frozenset(index for index, _, trial in self.filters if is_kind(trial, Giver))
        self.gives = bool(self.fickle)
        self.guides = [plugin for plugin in profile.plugins if is_kind(plugin, Guide)]
        scorers = [(scorer.plugin, scorer.weight, trials[scorer.plugin]) for scorer in profile.scorers]
        self.scorers: list[Scoring] = [entry for entry in scorers if not entry[0].wide]
        self.wide_scorers = [
            (plugin, weight, trial) for plugin, weight, trial in scorers if plugin.wide and is_kind(trial, WideTrial)
        ]
        self.wide = [trial for plugin, trial in trials.items() if plugin.wide and is_kind(trial, WideTrial)]
        self.order = [plugin.name for plugin, *_ in (*self.scorers, *self.wide_scorers)]
        self.flat: dict[str, int] = {}
        self.base = 0
        self._by_kin: dict[bytes, Panel] = {}

    def shortage(self, ask: PodAsk) -> tuple[int, Shortage] | None:
        """What `fitting` asks for the class, with its place."""
        return None if self.fitting is None else (self.fitting[0], self.fitting[1].shortage(ask))

    def parts(self, ask: PodAsk) -> tuple[list[Scoring], list[tuple[int, Part]], list[Scoring]]:
        """Who scores the class by arithmetic alone, (weight, what that is worked out from) of each of these, and who has to be asked."""
        summing: list[Scoring] = []
        parts: list[tuple[int, Part]] = []
        others: list[Scoring] = []
        for scoring in self.scorers:
            _, weight, trial = scoring
            part = trial.part(ask) if is_kind(trial, Summed) else None
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
        panel.moving = [entry for entry in panel.filters if not entry[1].static]
        panel.gives = any(is_kind(trial, Giver) for _, _, trial in panel.filters)
        panel.wide_filters = [entry for entry in self.wide_filters if _concerns(ask, entry[2])]
        panel.wide_scorers = [entry for entry in self.wide_scorers if _concerns(ask, entry[2])]
        panel.wide = [trial for trial in self.wide if _concerns(ask, trial)]
        panel.scorers, panel.flat = [], {}
        for plugin, weight, trial in self.scorers:
            if not plugin.static:
                panel.scorers.append((plugin, weight, trial))
                continue
            scores = trial.score(ask, every)
            if scores is None:
                continue
            if scores.any():
                panel.scorers.append((plugin, weight, trial))
            else:
                panel.flat[plugin.name] = (MAX_SCORE if plugin.normalize is Normalize.DOWN else 0) * weight
        panel.base = sum(panel.flat.values())
        return panel


def _concerns(ask: PodAsk, trial: Trial) -> bool:
    return not is_kind(trial, Selective) or trial.concerns(ask)


def _filters(ask: PodAsk, plugin: Plugin, trial: Trial, every: Rows) -> bool:
    return trial.filter(ask, every) is not None if plugin.static else _concerns(ask, trial)


def refuse_by(ask: PodAsk, by: Int64, verdict: Int64, filters: Sequence[Filtering], rows: Rows) -> None:
    """Ask filters; the first of the profile that refuses a node is noted for it. by, verdict: [rows]."""
    for index, _, trial in filters:
        verdicts = trial.filter(ask, rows)
        if verdicts is not None:
            note_refusals(by, verdict, verdicts, index)
