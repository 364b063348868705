"""What a pod is given of its node besides room, by all plugins that give something."""

from collections.abc import Mapping, Sequence

from services.scheduler.cycle.evaluation import Judge
from services.scheduler.framework.plugin import Plugin, Profile
from services.scheduler.framework.plugin_state import Giver, Returning, Trial
from services.scheduler.framework.protocols import is_kind
from services.scheduler.state.pod_class import PodAsk
from services.scheduler.state.pod_record import Held, PodFacts


class Givers:
    """The working copies that give something; none in most cycles that need none."""

    def __init__(self, trials: Mapping[Plugin, Trial]) -> None:
        self._givers = {plugin: trial for plugin, trial in trials.items() if is_kind(trial, Giver)}

    def give(self, judge: Judge, row: int) -> dict[str, str] | None:
        """What a pod of the judge's class gets on a node that passed, as annotations; None when a plugin has nothing to give.

        The judge then knows, and passes the node over.
        """
        annotations: dict[str, str] = {}
        for plugin, trial in self._givers.items() if judge.gives else ():
            if plugin not in judge.profile.filters:
                continue
            given = trial.give(judge.ask, row)
            if isinstance(given, int):
                judge.refuse(row, plugin, given)
                return None
            annotations.update(given)
        return annotations

    def promise(self, profile: Profile, ask: PodAsk, row: int, leaving: Sequence[Held]) -> dict[str, str]:
        """What a pod of the class gets on the node, as annotations: of what is free, else of what is once these pods have left it. What is
        not there even then is left out.
        """
        annotations: dict[str, str] = {}
        for plugin, trial in self._givers.items():
            given = trial.give(ask, row) if plugin in profile.filters else {}
            if isinstance(given, int) and isinstance(trial, Returning):
                for held in leaving:
                    trial.give_back(held, row, -1)
                given = trial.give(ask, row)
                for held in leaving:
                    trial.give_back(held, row, +1)
            if not isinstance(given, int):
                annotations.update(given)
        return annotations

    def hold(self, pod: PodFacts, ask: PodAsk, row: int, annotations: Mapping[str, str]) -> None:
        """Count what a pod was given, in every profile's working copy."""
        if annotations:
            for trial in self._givers.values():
                trial.hold(pod, ask, row, annotations)
