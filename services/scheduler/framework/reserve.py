"""What a pod is given of its node besides room, by all plugins that give something."""

from collections.abc import Mapping, Sequence

from services.scheduler.cycle.evaluation import Judge
from services.scheduler.framework.plugin import Plugin, Profile
from services.scheduler.framework.plugin_state import PluginState, Releasable, Reserver
from services.scheduler.framework.protocols import is_kind
from services.scheduler.state.pod_class import PodAsk
from services.scheduler.state.pod_record import Held, PodFacts


class Givers:
    """The working copies that give something; none in most cycles that need none."""

    def __init__(self, plugin_states: Mapping[Plugin, PluginState]) -> None:
        self._givers = {plugin: state for plugin, state in plugin_states.items() if is_kind(state, Reserver)}

    def reserve(self, judge: Judge, row: int) -> dict[str, str] | None:
        """What a pod of the judge's class gets on a node that passed, as annotations; None when a plugin has nothing to give.

        The judge then knows, and passes the node over.
        """
        annotations: dict[str, str] = {}
        for plugin, state in self._givers.items() if judge.gives else ():
            if plugin not in judge.profile.filters:
                continue
            given = state.reserve(judge.ask, row)
            if isinstance(given, int):
                judge.refuse(row, plugin, given)
                return None
            annotations.update(given)
        return annotations

    def reserve_after(self, profile: Profile, ask: PodAsk, row: int, leaving: Sequence[Held]) -> dict[str, str]:
        """What a pod of the class gets on the node, as annotations: of what is free, else of what is once these pods have left it. What is
        not there even then is left out.
        """
        annotations: dict[str, str] = {}
        for plugin, state in self._givers.items():
            given = state.reserve(ask, row) if plugin in profile.filters else {}
            if isinstance(given, int) and isinstance(state, Releasable):
                for held in leaving:
                    state.release(held, row, -1)
                given = state.reserve(ask, row)
                for held in leaving:
                    state.release(held, row, +1)
            if not isinstance(given, int):
                annotations.update(given)
        return annotations

    def assume(self, pod: PodFacts, ask: PodAsk, row: int, annotations: Mapping[str, str]) -> None:
        """Count what a pod was given, in every profile's working copy."""
        if annotations:
            for state in self._givers.values():
                state.assume(pod, ask, row, annotations)
