"""Reserve: CPUs, NUMA zones and devices that plugins allocate to a pod below its node."""

from collections.abc import Mapping, Sequence

from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.framework.plugin import Plugin
from services.scheduler.framework.plugin_state import PluginState
from services.scheduler.framework.profile import Profile
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import Assignment, PodRecord


class Reservers:
    """The states of the plugins that reserve resources below the node."""

    def __init__(self, plugin_states: Mapping[Plugin, PluginState]) -> None:
        self._reservers = {plugin: state for plugin, state in plugin_states.items() if plugin.spec.reserves}

    def reserve(self, evaluation: ClassEvaluation, row: int) -> dict[str, str] | None:
        """Returns the allocation of a pod on a feasible node, as annotations.

        None when a plugin cannot reserve its resources; the evaluation then has the node as rejected.
        """
        annotations: dict[str, str] = {}
        for plugin, state in self._reservers.items() if evaluation.reserves else ():
            if plugin not in evaluation.profile.filters:
                continue
            allocation = state.reserve(evaluation.pod_class, row)
            if isinstance(allocation, int):
                evaluation.refuse(row, plugin, allocation)
                return None
            annotations.update(allocation)
        return annotations

    def reserve_after(
        self, profile: Profile, pod_class: PodClass, row: int, leaving: Sequence[Assignment]
    ) -> dict[str, str]:
        """Returns the allocation of a pod on a node, as annotations: of free resources, else of those that `leaving`
        releases.

        The allocation of a plugin that has too few resources even then is left out.
        """
        annotations: dict[str, str] = {}
        for plugin, state in self._reservers.items():
            allocation = state.reserve(pod_class, row) if plugin in profile.filters else {}
            if isinstance(allocation, int):
                for assignment in leaving:
                    state.release(assignment, row, -1)
                allocation = state.reserve(pod_class, row)
                for assignment in leaving:
                    state.release(assignment, row, +1)
            if not isinstance(allocation, int):
                annotations.update(allocation)
        return annotations

    def assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:
        """Counts a pod's allocation in the state of every profile's plugins."""
        if annotations:
            for state in self._reservers.values():
                state.assume(pod, pod_class, row, annotations)
