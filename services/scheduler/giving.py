"""What a pod is given of its node besides room, by all plugins that give something."""

from collections.abc import Mapping

from services.scheduler.ask import PodAsk
from services.scheduler.framework import Giver, Plugin, Trial
from services.scheduler.judge import Judge
from services.scheduler.pods import PodFacts


class Givers:
    """The working copies that give something; none in most rounds that need none."""

    def __init__(self, trials: Mapping[Plugin, Trial]) -> None:
        self._givers = {plugin: trial for plugin, trial in trials.items() if isinstance(trial, Giver)}

    def give(self, judge: Judge, row: int) -> dict[str, str] | None:
        """What a pod of the judge's class gets on a node that passed, as annotations; None when a plugin has nothing to give.

        The judge then knows, and passes the node over.
        """
        annotations: dict[str, str] = {}
        for plugin, trial in self._givers.items():
            if plugin not in judge.profile.filters:
                continue
            given = trial.give(judge.ask, row)
            if isinstance(given, int):
                judge.refuse(row, plugin, given)
                return None
            annotations.update(given)
        return annotations

    def hold(self, pod: PodFacts, ask: PodAsk, row: int, annotations: Mapping[str, str]) -> None:
        """Count what a pod was given, in every profile's working copy."""
        if annotations:
            for trial in self._givers.values():
                trial.hold(pod, ask, row, annotations)
