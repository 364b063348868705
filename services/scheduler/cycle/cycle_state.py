"""The state of one cycle: a snapshot of the nodes and the state of each plugin, changed by each pod that is placed."""

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
    """The nodes as a settled cache has them, for one cycle or one dry run.

    Attributes:
        snapshot: requested amounts of the nodes.
        plugin_states: plugin -> its state.
        reservers: plugins that reserve resources below the node.
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

    def count(self, pod: PodRecord, pod_class: PodClass, row: int, allocation: Mapping[str, str]) -> None:
        """Counts a pod on the node with its allocation there."""
        self.snapshot.place(pod_class, row)
        for state in self._counting:
            state.place(pod, pod_class, row)
        self.reservers.assume(pod, pod_class, row, allocation)

    def nominate(
        self, pod: PodRecord, pod_class: PodClass, profile: Profile, row: int, leaving: Sequence[Assignment]
    ) -> dict[str, str]:
        """Counts a pod on the node that it is nominated for.

        Returns:
            Its allocation there once the pods in `leaving` have terminated.
        """
        allocation = self.reservers.reserve_after(profile, pod_class, row, leaving)
        self.count(pod, pod_class, row, allocation)
        return allocation

    def count_all(self, pods: Sequence[PodRecord], pod_class: PodClass, rows: Sequence[int]) -> int:
        """Counts equal pods without an allocation, each on another node, as far as they change their nodes as
        predicted; returns how many.
        """
        count = min((state.count_predicted(pods, pod_class, rows) for state in self._counting), default=len(rows))
        pods, rows = pods[:count], rows[:count]
        self.snapshot.place_all(pod_class, rows)
        for state in self._counting:
            state.place_all(pods, pod_class, rows)
        return count

    def matched_prediction(self) -> bool:
        """Returns True when the pod that was counted last changed its node as predicted; its allocation is not
        considered.
        """
        return all(state.matched_prediction() for state in self._counting)

    def move(self, assignment: Assignment, row: int, sign: int) -> None:
        """Removes a pod that was assigned when the cycle began from its node (-1), or puts it back (+1)."""
        self.snapshot.move(assignment.pod_class, row, sign)
        for state in self._removing:
            state.move(assignment.pod_class, row, terminating=assignment.terminating, sign=sign)
        for state in self._reserving:
            state.release(assignment, row, sign)
