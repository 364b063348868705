"""What a cycle works on: the room on the nodes, and every plugin's working copy, moved on by each pod that is placed."""

from collections.abc import Mapping, Sequence

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.cycle.reserve import Reservers
from services.scheduler.cycle.scheduling_cache import SchedulingCache
from services.scheduler.framework.plugin import Plugin
from services.scheduler.framework.plugin_state import PluginState
from services.scheduler.framework.profile import Profile
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import Assignment, PodRecord


class CycleState:
    """The nodes as a settled index has them, for one cycle or for one question of what would be.

    Attributes:
        snapshot: what is taken.
        plugin_states: each plugin's working copy.
        reservers: those that give pods something.
    """

    def __init__(self, cache: SchedulingCache, now_ns: int) -> None:
        self.snapshot = CycleSnapshot(cache.table, cache.pod_index, cache.cluster_objects)
        self.plugin_states: dict[Plugin, PluginState] = {
            plugin: plugin.new_state(self.snapshot, plugin_cache, now_ns)
            for plugin, plugin_cache in cache.plugin_caches.items()
        }
        self.reservers = Reservers(self.plugin_states)
        states = self.plugin_states.items()
        self._counting = [state for plugin, state in states if plugin.spec.counts_placements]
        self._removing = [state for plugin, state in states if plugin.spec.counts_removals]
        self._reserving = [state for plugin, state in states if plugin.spec.reserves]

    def count(self, pod: PodRecord, pod_class: PodClass, row: int, given: Mapping[str, str]) -> None:
        """A pod goes to the node, and gets what it is given there."""
        self.snapshot.place(pod_class, row)
        for state in self._counting:
            state.place(pod, pod_class, row)
        self.reservers.assume(pod, pod_class, row, given)

    def nominate(
        self, pod: PodRecord, pod_class: PodClass, profile: Profile, row: int, leaving: Sequence[Assignment]
    ) -> dict[str, str]:
        """Counts a pod on the node that it is nominated for, with what it is promised there once these pods have left; returns that."""
        given = self.reservers.reserve_after(profile, pod_class, row, leaving)
        self.count(pod, pod_class, row, given)
        return given

    def count_all(self, pods: Sequence[PodRecord], pod_class: PodClass, rows: Sequence[int]) -> int:
        """Equal pods go to these nodes, each to another, and get nothing but room there; how many: those that change it as is foreseen."""
        count = min((state.count_predicted(pods, pod_class, rows) for state in self._counting), default=len(rows))
        pods, rows = pods[:count], rows[:count]
        self.snapshot.place_all(pod_class, rows)
        for state in self._counting:
            state.place_all(pods, pod_class, rows)
        return count

    def matched_prediction(self) -> bool:
        """Whether the pod that was counted last changed its node as was foreseen, gifts aside."""
        return all(state.matched_prediction() for state in self._counting)

    def move(self, assignment: Assignment, row: int, sign: int) -> None:
        """A pod that ran when the cycle began is taken off its node (-1), or put back (+1)."""
        self.snapshot.move(assignment.pod_class, row, sign)
        for state in self._removing:
            state.move(assignment.pod_class, row, terminating=assignment.terminating, sign=sign)
        for state in self._reserving:
            state.release(assignment, row, sign)
