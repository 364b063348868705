"""What decisions read: the state's facts as arrays over nodes, the queue, and the plugins' ledgers.

An index is a function of the state and of the configuration. It follows the state by what was touched, moves every total by the
difference, and can be thrown away and built anew at any time with the same decisions.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from services.scheduler.cache.cluster_objects import NODE_TOPOLOGIES, ClusterObjects
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache, SelectiveCache, TopologyCache
from services.scheduler.cache.pod_index import PodIndex
from services.scheduler.framework.plugin import Plugin, Profile
from services.scheduler.framework.protocols import is_kind
from services.scheduler.queue.scheduling_queue import Queue
from services.scheduler.quota.queue_gate import QuotaGate
from services.scheduler.quota.reasons import waits_for_quota
from services.scheduler.state.cluster_view import ClusterView
from services.scheduler.state.latest_usage import newest, youngest
from services.scheduler.state.node_reservation import less_reserved
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import Assignment, PodRecord
from services.scheduler.state.records import DirtySet
from shared.domain.deprecated_resources import node_with_todays_names


class SchedulingCache:
    """The derived side of one ClusterView; there is one index a view at a time, the newest.

    Attributes:
        profiles: schedulerName -> profile.
        table: the nodes.
        pod_index: which classes of pods run where.
        cluster_objects: what there is beyond nodes and pods.
        on: row -> uid -> the pod that counts there.
        gate: the pods that wait for room in their quota.
        nominated: uid -> the pod of one of the profiles that waits for room made for it.
        evicting: uid -> the pod that counts on a node while an eviction of it that we requested is under way, in no order that matters.
        queue: the pods that wait for one of the profiles.
        plugin_caches: plugin -> the account it asked for, if it did.
    """

    def __init__(self, view: ClusterView, profiles: Mapping[str, Profile], beside: str = "") -> None:
        """Begin to follow a view.

        Args:
            beside: another scheduler's name: its pods are never queued, although a profile of that name may judge them.
        """
        self.view = view
        self.profiles = profiles
        self.table = NodeTable(room=max(64, len(view.nodes)))
        self.pod_index = PodIndex()
        self.cluster_objects = ClusterObjects()
        self.cluster_objects.storage.chosen = view.chosen
        self.queue = Queue({name: profile for name, profile in profiles.items() if name != beside})
        self.gate = QuotaGate(view.quota)
        self._assignments: dict[str, Assignment] = {}
        self.on: dict[int, dict[str, Assignment]] = {}
        self.nominated: dict[str, PodRecord] = {}
        self.evicting: dict[str, PodRecord] = {}
        plugins = dict.fromkeys(plugin for profile in profiles.values() for plugin in profile.plugins)
        self.plugin_caches: dict[Plugin, PluginCache | None] = {plugin: plugin.new_cache() for plugin in plugins}
        self._plugin_caches = tuple(
            plugin_cache for plugin_cache in self.plugin_caches.values() if plugin_cache is not None
        )
        self._told = tuple((each, each if isinstance(each, SelectiveCache) else None) for each in self._plugin_caches)
        self._moves: list[tuple[int, PodClass, int]] = []  # not counted in the table yet
        view.read()
        for pod_class in view.pod_classes.values():
            pod_class.cached.clear()
        view.dirty = dirty = DirtySet()
        dirty.objects.update(((resource, key), None) for resource, objects in view.objects.items() for key in objects)
        dirty.nodes.update(dict.fromkeys(sorted(view.nodes)))
        dirty.metrics.update(dict.fromkeys(sorted({*view.metrics, *view.reports})))
        dirty.pods.update(dict.fromkeys(sorted(view.pods)))
        self._nodes_read: dict[str, object] = {}
        self._unsettled: set[str] = set()  # uids that the queue, the gate or `nominated` may know
        self._steps: deque[tuple[Callable[[Any], None], Any]] = deque()

    def settle(self, most: int | None = None) -> bool:
        """Bring everything up to what the state says.

        Args:
            most: how many names to look at; all when not given. A shell settles a large change in steps, so that it never
                holds its process for long.

        Returns:
            Whether all of it is done.
        """
        view, steps = self.view, self._steps
        view.read()
        dirty = view.dirty
        assert dirty is not None, "an index notes what is touched from its start"
        noted: tuple[tuple[dict[Any, None], Callable[[Any], None]], ...] = (
            (dirty.objects, self._settle_object),
            (dirty.nodes, self._settle_node),
            (dirty.metrics, self._settle_metric),
            (dirty.pods, self._settle_pod),
        )
        for names, step in noted:
            if names:
                steps.extend((step, name) for name in names)
                names.clear()
        for _ in range(len(steps) if most is None else min(most, len(steps))):
            settle_one, name = steps.popleft()
            settle_one(name)
        if not steps:
            for uid in self.gate.changed():
                self._settle_pod(uid)
        self._count_moves()
        return not steps

    def _settle_object(self, which: tuple[str, str]) -> None:
        resource, key = which
        self.cluster_objects.set(resource, key, self.view.objects.get(resource, {}).get(key))
        if resource == NODE_TOPOLOGIES:
            for plugin_cache in self._plugin_caches:
                if is_kind(plugin_cache, TopologyCache):
                    plugin_cache.set_topology(key, self.cluster_objects.topologies.get(key))

    def _settle_node(self, name: str) -> None:
        node_record = self.view.nodes.get(name)
        if node_record is None:
            self._nodes_read.pop(name, None)
            row = self.table.set_node(name, None)
            for plugin_cache in self._plugin_caches:
                plugin_cache.set_node(row, None)
            self._release_row(name)
        elif self._nodes_read.get(name) is node_record.node:
            self.table.set_changed(name, node_record.changed)
        else:
            self._nodes_read[name] = node_record.node
            node = less_reserved(node_with_todays_names(node_record.node))
            row = self.table.set_node(name, node, node_record.changed)
            for plugin_cache in self._plugin_caches:
                plugin_cache.set_node(row, node)

    def _settle_metric(self, name: str) -> None:
        reports = self.view.reports.get(name, {})
        metric_record = newest(self.view.metrics.get(name), reports)
        row = self.table.row(name)
        context = youngest(reports)[0] if reports else ""
        self.table.set_reported(row, context, self.view.reported[name][context] if reports else 0)
        for plugin_cache in self._plugin_caches:
            if metric_record is None:
                plugin_cache.set_metric(row, None, "")
            else:
                plugin_cache.set_metric(row, metric_record.metric, metric_record.updated)
        if metric_record is None:
            self._release_row(name)

    def _settle_pod(self, uid: str) -> None:
        pod_record = self.view.pods.get(uid)
        before = self._assignments.get(uid)
        after = None if pod_record is None else pod_record.assignment()
        if before is None or before != after:
            if before is not None:
                del self._assignments[uid]
                self._leave(uid, before)
            if after is not None:
                self._assignments[uid] = after
                self._come(uid, after)
        if pod_record is not None and after is not None and pod_record.is_eviction_requested():
            self.evicting[uid] = pod_record
        else:
            self.evicting.pop(uid, None)
        settled = (
            pod_record is not None
            and pod_record.node != ""
            and not pod_record.attempts
            and not pod_record.eviction_refused_at
        )
        if settled and uid not in self._unsettled:
            return  # most pods: they run, and no question about them is open
        if settled or pod_record is None:
            self._unsettled.discard(uid)
        else:
            self._unsettled.add(uid)
        # Nobody places a pod without a profile here: capacity would be kept for it in vain, and nothing evaluates it.
        is_ours = (
            pod_record is not None
            and pod_record.pod_class is not None
            and pod_record.pod_class.scheduler in self.profiles
        )
        if pod_record is not None and is_ours and pod_record.nominated and pod_record.waiting(self.view.gateway_since):
            self.nominated[uid] = pod_record
        else:
            self.nominated.pop(uid, None)
        eviction_refused_at = (
            self._eviction_refused_at(pod_record) if uid in self.nominated and pod_record is not None else 0
        )
        queued, eviction_refused_at = self.gate.place(uid, pod_record, eviction_refused_at)
        self.queue.put(uid, queued, self.view.gateway_since, self.view.config_seq, eviction_refused_at)
        if pod_record is not None and pod_record.eviction_refused_at:
            self._tell_nominated(pod_record)

    def _eviction_refused_at(self, nominated: PodRecord) -> int:
        """When (`cluster` seq) the going of a pod that may make room for this one was last refused."""
        makers: Iterable[str] = self.on.get(self.table.rows.get(nominated.nominated, -1), ())
        entry = self.view.quota.pods.get(nominated.uid)
        if entry is not None and waits_for_quota(nominated.reasons):
            makers = self.view.quota.pods_of[entry.quota]
        there = (self.view.pods.get(uid) for uid in makers)  # None: gone, and not settled yet
        return max((pod_record.eviction_refused_at for pod_record in there if pod_record is not None), default=0)

    def _tell_nominated(self, stayed: PodRecord) -> None:
        """Who was to have the room of a pod that stays may look for other room."""
        quotas = self.view.quota.pods
        own = quotas.get(stayed.uid)
        for uid, pod_record in self.nominated.items():
            is_there = pod_record.nominated == stayed.node
            if waits_for_quota(pod_record.reasons):
                is_there = own is not None and uid in quotas and quotas[uid].quota == own.quota
            if is_there:
                self.queue.put(
                    uid, pod_record, self.view.gateway_since, self.view.config_seq, stayed.eviction_refused_at
                )

    def _come(self, uid: str, assignment: Assignment) -> None:
        row, pod_class = self.table.row(assignment.node), assignment.pod_class
        self._moves.append((row, pod_class, +1))
        self.pod_index.move(row, pod_class, ending=assignment.ending, sign=+1)
        for plugin_cache in self._told_of(pod_class):
            plugin_cache.assign(row, uid, assignment)
        there = self.on.get(row)
        if there is None:
            there = self.on[row] = {}
        there[uid] = assignment

    def _leave(self, uid: str, assignment: Assignment) -> None:
        row, pod_class = self.table.row(assignment.node), assignment.pod_class
        self._moves.append((row, pod_class, -1))
        self.pod_index.move(row, pod_class, ending=assignment.ending, sign=-1)
        for plugin_cache in self._told_of(pod_class):
            plugin_cache.release(row, uid, assignment)
        del self.on[row][uid]
        if not self.on[row]:
            del self.on[row]
        self._release_row(assignment.node)

    def _told_of(self, pod_class: PodClass) -> tuple[PluginCache, ...]:
        """The accounts in which pods of the class count."""
        told: tuple[PluginCache, ...] | None = pod_class.cached.get(self)
        if told is None:
            told = tuple(each for each, selective in self._told if selective is None or selective.applies_to(pod_class))
            pod_class.cached[self] = told
        return told

    def _count_moves(self) -> None:
        if self._moves:
            self.table.count(self._moves)
            self._moves.clear()

    def _release_row(self, name: str) -> None:
        self._count_moves()  # a row with pods is not released
        view = self.view
        if name not in view.nodes and name not in view.metrics and name not in view.reports:
            self.table.release(name)
