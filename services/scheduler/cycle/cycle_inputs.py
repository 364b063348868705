"""Everything that a cycle reads: the cluster cache, the queue of waiting pods, and the cache of each plugin of the
profiles.

A function of the State and of the configuration: it can be thrown away and built anew at any time with the same
decisions.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from services.scheduler.cache.cluster_cache import ClusterCache
from services.scheduler.cache.network_domains import NetworkDomains
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.cycle.cycle_plan import LostNomination, ReleasedPod
from services.scheduler.cycle.pods_waiting_for_pre_bind import Preparations
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.profile import Profile
from services.scheduler.queue.quota_gate import QuotaGate
from services.scheduler.queue.scheduling_queue import SchedulingQueue
from services.scheduler.queue.units import UNGROUPED, Groupings
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_reason_codes import waits_for_quota
from services.scheduler.state.scheduler_state import SchedulerState


class CycleInputs(ClusterCache):
    """The cluster cache with the pods that wait for one of the profiles.

    Attributes:
        backfill: see `__init__`.
        profiles: schedulerName -> profile.
        groupings: those of the profiles that group pods.
        changed_gangs: ids of the gangs that changed since statuses and evictions of gangs were last considered.
        compared_topology: the ClusterNetworkTopology and the tree whose status was last compared.
        queue: the pods that wait for one of the profiles.
        gate: the pods that wait for capacity in their quota.
        nominated: uid -> a waiting pod of one of the profiles for which victims are evicted.
        preparations: the pods for which a node is held while something is prepared.
        plugin_caches: plugin -> its cache; None for a plugin without one.
    """

    def __init__(
        self,
        view: SchedulerState,
        profiles: Mapping[str, Profile],
        shadowed: str = "",
        *,
        believes_annotations: bool = False,
        by_sub_priority: bool = True,
        scheduler_gates: frozenset[str] = frozenset(),
        checks_reports: bool = True,
        backfill: bool = False,
    ) -> None:
        """Begins to follow a view.

        Args:
            shadowed: the name of another scheduler. Its pods are never queued, although a profile of that name may
                evaluate them.
            believes_annotations: allocations in the annotations of pods that this scheduler did not place are believed,
                as they are where another scheduler of Koordinator's kind places pods.
            by_sub_priority: see `SchedulingQueue`.
            scheduler_gates: the feature gates that are on.
            checks_reports: see `ClusterCache`.
            backfill: pods pass a waiting unit only where its planned start does not move.
        """
        self.backfill = backfill
        self.profiles = profiles
        queued = {name: profile for name, profile in profiles.items() if name != shadowed}
        made = {plugin: plugin.new_grouping(view) for profile in queued.values() for plugin in profile.grouping}
        self._groupings = tuple(made.values())
        self.groupings: Groupings = {
            name: {plugin.name: made[plugin] for plugin in profile.grouping}
            for name, profile in queued.items()
            if profile.grouping
        }
        self.queue = SchedulingQueue(queued, self.groupings, by_sub_priority=by_sub_priority)
        self.changed_gangs: dict[str, None] = dict.fromkeys(view.gangs.gangs)
        self.compared_topology: tuple[Mapping[str, Any] | None, NetworkDomains | None] = (None, None)
        self.gate = QuotaGate(view.quota)
        self.nominated: dict[str, PodRecord] = {}
        plugins = dict.fromkeys(plugin for profile in profiles.values() for plugin in profile.plugins)
        self.plugin_caches: dict[Plugin, PluginCache | None] = {plugin: plugin.new_cache() for plugin in plugins}
        self.preparations = Preparations(self, profiles, self.groupings)
        self._grouped_to_place: dict[str, None] = {}  # uids of pods whose place depends on others of their group
        self._unsettled: set[str] = set()  # uids that the queue, the gate or `nominated` may have
        caches = (each for each in self.plugin_caches.values() if each is not None)
        super().__init__(
            view,
            caches,
            believes_annotations=believes_annotations or bool(shadowed),
            checks_reports=checks_reports,
        )
        self.cluster_objects.gates = scheduler_gates

    def expired_holds(self, now_ns: int) -> list[ReleasedPod]:
        """Returns the pods that waited too long with a node for others of their unit."""
        expired = (pod for grouping in self._groupings for pod in grouping.expired(now_ns))
        return [
            ReleasedPod(
                pod, f"it waited too long for the other pods of {pod.hold.unit if pod.hold is not None else ''}"
            )
            for pod in expired
        ]

    def lost_nominations(self) -> tuple[LostNomination, ...]:
        """Returns the nominated pods that are held back, such as those whose PodGroup was deleted: the capacity would be
        kept for them in vain, for as long as nobody changes their gang.
        """
        lost: list[LostNomination] = []
        for pod in self.nominated.values():
            membership = self.queue.grouped(pod).membership
            if (why := membership.held_back) is not None and not membership.keeps_nomination:
                assert pod.pod_class is not None, "only pods that have been read are nominated"
                texts = self.profiles[pod.pod_class.scheduler].texts
                lost.append(LostNomination(pod, f"it is not tried at present: {texts.text(why.code, why.detail)}"))
        return tuple(lost)

    def next_at_ns(self) -> int | None:
        """Returns the next time at which a pod moves in the queue, or loses a held node, without an event."""
        expiries = (grouping.next_expiry_ns() for grouping in self._groupings)
        times = (self.queue.next_at_ns(), self.preparations.next_at_ns(), *expiries)
        return min((each for each in times if each is not None), default=None)

    def _settle_gang(self, gang: str) -> None:
        self.changed_gangs[gang] = None
        for grouping in self._groupings:
            grouping.gang_changed(gang)

    def _all_settled(self) -> None:
        for grouping in self._groupings:
            self._grouped_to_place.update(dict.fromkeys(grouping.changed()))
        for uid in self._grouped_to_place:
            self._place(uid, self.view.pods.get(uid))
        self._grouped_to_place.clear()
        for uid in self.gate.changed():  # after the groups: a pod that is held back leaves its capacity to others
            self._place(uid, self.view.pods.get(uid))
        for uid, pod_record in self.nominated.items():
            if left_at := self._last_left_at(pod_record):
                self._put_nominated(uid, pod_record, left_at)

    def _pod_settled(self, uid: str, pod_record: PodRecord | None) -> None:
        self.preparations.note(uid, pod_record)
        is_grouped = False
        for grouping in self._groupings:
            is_grouped |= grouping.pod_changed(uid)
        if is_grouped:
            self._grouped_to_place[uid] = None
        else:
            self._place(uid, pod_record)

    def _place(self, uid: str, pod_record: PodRecord | None) -> None:
        """Places a pod by its record: into the queue, the gate or the nominated pods, or into none of them."""
        if (
            pod_record is None
            or not (pod_record.node or (pod_record.placed_seq and pod_record.is_placed()))
            or pod_record.attempts
            or pod_record.eviction_refused_at
        ):
            self._place_unsettled(uid, pod_record)
        elif uid in self._unsettled:  # most pods run, and neither queue nor gate has them
            self._unsettled.discard(uid)
            self.nominated.pop(uid, None)
            self.gate.leave(uid)
            self.queue.leave(uid)

    def _place_unsettled(self, uid: str, pod_record: PodRecord | None) -> None:
        if pod_record is None:
            self._unsettled.discard(uid)
        else:
            self._unsettled.add(uid)
        gateway_since, retry_after = self.view.gateway_since, 0
        if pod_record is not None and pod_record.nominated and self._is_nominated(pod_record):
            self.nominated[uid] = pod_record
            retry_after = self._retry_after(pod_record)
        else:
            self.nominated.pop(uid, None)
        grouped = UNGROUPED if pod_record is None else self.queue.grouped(pod_record)
        queued = pod_record if self.queue.takes(pod_record, gateway_since, grouped) else None
        queued, retry_after = self.gate.place(uid, queued, retry_after, in_group=grouped.group is not None)
        self.queue.put(uid, queued, gateway_since, self.view.config_seq, retry_after, grouped)
        if pod_record is not None and pod_record.eviction_refused_at:
            self._requeue_nominated(pod_record)

    def _is_nominated(self, pod_record: PodRecord) -> bool:
        """Returns True while capacity is kept for a nominated pod. Nobody places a pod without a profile here: capacity
        would be kept for it in vain, and nothing evaluates it.
        """
        pod_class = pod_record.pod_class
        return (
            pod_class is not None
            and pod_class.scheduler in self.profiles
            and pod_record.waiting(self.view.gateway_since)
        )

    def _retry_after(self, nominated: PodRecord) -> int:
        """Returns the `cluster` seq after which a nominated pod is tried again: that of the newest refused eviction of
        a pod whose end could admit it, or of the last pod that left its node; 0 without either.
        """
        victims: Iterable[str] = self.on.get(self.table.rows.get(nominated.nominated, -1), ())
        entry = self.view.quota.pods.get(nominated.uid)
        if entry is not None and waits_for_quota(nominated.reasons):
            victims = self.view.quota.pods_of[entry.quota]
        records = (self.view.pods.get(uid) for uid in victims)  # None: deleted, and not settled yet
        refused = (pod_record.eviction_refused_at for pod_record in records if pod_record is not None)
        return max((self._last_left_at(nominated), *refused))

    def _last_left_at(self, nominated: PodRecord) -> int:
        """Returns the `cluster` seq at which the last pod left the node that a pod is nominated for; 0 while pods of
        lower priority still leave it, where none has left since its last attempt, and for a pod that waits for its
        quota.

        While they do, no victims are sought for the nominated pod. Where what they have left is not enough, no event
        admits it either: it has to look for victims again, or to lose what is kept for it.
        """
        pod_class, row = nominated.pod_class, self.table.rows.get(nominated.nominated)
        if row is None or pod_class is None or waits_for_quota(nominated.reasons):
            return 0
        left_at = int(self.table.changed[row, ClusterEvent.POD_RELEASED])
        if left_at <= nominated.saw:
            return 0
        for uid, assignment in self.on.get(row, {}).items():
            leaves = assignment.terminating or uid in self.evicting
            if leaves and assignment.pod_class.priority < pod_class.priority:
                return 0
        return left_at

    def _requeue_nominated(self, counted: PodRecord) -> None:
        """Lets the pods be tried again that were nominated for the capacity of a pod whose eviction was refused."""
        quotas = self.view.quota.pods
        own = quotas.get(counted.uid)
        for uid, pod_record in self.nominated.items():
            is_there = pod_record.nominated == counted.node
            if waits_for_quota(pod_record.reasons):
                is_there = own is not None and uid in quotas and quotas[uid].quota == own.quota
            if is_there:
                self._put_nominated(uid, pod_record, counted.eviction_refused_at)

    def _put_nominated(self, uid: str, pod_record: PodRecord, retry_after: int) -> None:
        grouped = self.queue.grouped(pod_record)
        self.queue.put(uid, pod_record, self.view.gateway_since, self.view.config_seq, retry_after, grouped)
