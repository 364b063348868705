"""A profile's plugins with their working copies of one round, sorted by what the judge has to do with each: once a round."""

from collections.abc import Mapping

from services.scheduler.framework import Giver, Guide, Plugin, Profile, Trial, WideTrial, is_kind

Filtering = tuple[int, Plugin, Trial]
"""(place among the profile's filters, plugin, working copy)."""
Scoring = tuple[Plugin, int, Trial]
"""(plugin, weight, working copy)."""


class Panel:
    """Who judges.

    Attributes:
        filters: those that judge a node by itself, in order; moving: those of them whose verdict a placement may change.
        fickle: places of those that may think better of a node after a placement.
        wide_filters, wide_scorers: those that look beyond the node; wide: the working copies of both.
        scorers: the others, with weights.
        guides: those that know nodes which come first.
    """

    def __init__(self, profile: Profile, trials: Mapping[Plugin, Trial]) -> None:
        self.profile = profile
        filters = [(index, plugin, trials[plugin]) for index, plugin in enumerate(profile.filters)]
        self.filters: list[Filtering] = [entry for entry in filters if not entry[1].wide]
        self.wide_filters: list[Filtering] = [entry for entry in filters if entry[1].wide]
        self.moving: list[Filtering] = [entry for entry in self.filters if not entry[1].static]
        self.fickle = frozenset(index for index, _, trial in self.filters if is_kind(trial, Giver))
        self.guides = [plugin for plugin in profile.plugins if is_kind(plugin, Guide)]
        scorers = [(scorer.plugin, scorer.weight, trials[scorer.plugin]) for scorer in profile.scorers]
        self.scorers: list[Scoring] = [entry for entry in scorers if not entry[0].wide]
        self.wide_scorers = [
            (plugin, weight, trial) for plugin, weight, trial in scorers if plugin.wide and is_kind(trial, WideTrial)
        ]
        self.wide = [trial for plugin, trial in trials.items() if plugin.wide and is_kind(trial, WideTrial)]
