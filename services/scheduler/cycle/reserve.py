"""What a pod is given of its node besides room, by all plugins that give something."""

from collections.abc import Mapping, Sequence

from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.framework.plugin import Plugin
from services.scheduler.framework.plugin_state import PluginState
from services.scheduler.framework.profile import Profile
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import Assignment, PodRecord


class Reservers:
    """The working copies that give something; none in most cycles that need none."""

    def __init__(self, plugin_states: Mapping[Plugin, PluginState]) -> None:
        self._reservers = {plugin: state for plugin, state in plugin_states.items() if plugin.spec.reserves}

    def reserve(self, evaluation: ClassEvaluation, row: int) -> dict[str, str] | None:
        """What a pod of the judge's class gets on a node that passed, as annotations; None when a plugin has nothing to give.

        The judge then knows, and passes the node over.
        """
        annotations: dict[str, str] = {}
        for plugin, state in self._reservers.items() if evaluation.gives else ():
            if plugin not in evaluation.profile.filters:
                continue
            given = state.reserve(evaluation.pod_class, row)
            if isinstance(given, int):
                evaluation.refuse(row, plugin, given)
                return None
            annotations.update(given)
        return annotations

    def reserve_after(
        self, profile: Profile, pod_class: PodClass, row: int, leaving: Sequence[Assignment]
    ) -> dict[str, str]:
        """What a pod of the class gets on the node, as annotations: of what is free, else of what is once these pods have left it. What is
        not there even then is left out.
        """
        annotations: dict[str, str] = {}
        for plugin, state in self._reservers.items():
            given = state.reserve(pod_class, row) if plugin in profile.filters else {}
            if isinstance(given, int):
                for assignment in leaving:
                    state.release(assignment, row, -1)
                given = state.reserve(pod_class, row)
                for assignment in leaving:
                    state.release(assignment, row, +1)
            if not isinstance(given, int):
                annotations.update(given)
        return annotations

    def assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:
        """Count what a pod was given, in every profile's working copy."""
        if annotations:
            for state in self._reservers.values():
                state.assume(pod, pod_class, row, annotations)
