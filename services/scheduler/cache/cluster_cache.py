"""Nodes, pods and plugin caches as arrays, kept current from the State by differences.

A cluster cache is a function of the State. It follows the names that the fold marked as changed, moves every total by
the difference, and can be thrown away and built anew at any time with the same decisions.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from services.scheduler.cache.cluster_objects import ClusterObjects
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.cache.pod_counts_by_selector_and_node import PodIndex
from services.scheduler.state.allocatable_less_node_reservation import less_reserved
from services.scheduler.state.choose_newest_measurement import believed, newest, youngest
from services.scheduler.state.names_changed_since_cache_settled import DirtySet
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import DEVICES, NODE_TOPOLOGIES
from shared.domain.deprecated_resources import node_with_current_names


class ClusterCache:
    """The arrays of one SchedulerState. A view has one cache at a time, the newest.

    Attributes:
        view: the folded State.
        table: the nodes.
        pod_index: the number of pods of each class on each node.
        cluster_objects: namespaces, workloads, volumes, budgets and topologies.
        on: row -> uid -> the pod that is assigned there.
        evicting: uid -> an assigned pod with a requested eviction that is neither done nor refused, in no order that
            matters.
    """

    def __init__(
        self,
        view: SchedulerState,
        plugin_caches: Iterable[PluginCache],
        *,
        believes_annotations: bool = False,
        checks_reports: bool = True,
    ) -> None:
        """Begins to follow a view; everything in it is read by the next `settle`.

        Args:
            believes_annotations: see `PodRecord.assignment`.
            checks_reports: an implausible usage report counts as expired; else it counts as upstream counts it.
        """
        self._believes_annotations = believes_annotations
        self._checks_reports = checks_reports
        self.view = view
        self.table = NodeTable(room=max(64, len(view.nodes)))
        self.pod_index = PodIndex()
        self.cluster_objects = ClusterObjects()
        self.cluster_objects.storage.chosen = view.chosen
        self.cluster_objects.storage.unselected = view.unselected
        self.on: dict[int, dict[str, Assignment]] = {}
        self.evicting: dict[str, PodRecord] = {}
        self._assignments: dict[str, Assignment] = {}
        self._plugin_caches = tuple(plugin_caches)
        self._moves: list[tuple[int, PodClass, int]] = []  # not counted in the table yet
        view.read()
        for pod_class in view.pod_classes.values():
            pod_class.cached.clear()
        view.dirty = dirty = DirtySet()
        dirty.objects.update(((resource, key), None) for resource, objects in view.objects.items() for key in objects)
        dirty.nodes.update(dict.fromkeys(sorted(view.nodes)))
        dirty.metrics.update(dict.fromkeys(sorted({*view.metrics, *view.reports})))
        dirty.pods.update(dict.fromkeys(sorted(view.pods)))
        view.gangs.dirty = dirty.gangs
        self._nodes_read: dict[str, object] = {}
        self._capacities: dict[str, Mapping[str, str] | None] = {}
        self._steps: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._metrics_to_settle: set[str] = set()  # names that have a step
        self._uses_to_settle: set[str] = set()  # uids of Reservations that have a step

    def settle(self, most: int | None = None) -> bool:
        """Brings everything up to the State.

        Args:
            most: the number of names to settle; all when not given. A service settles a large change in steps, so that
                its event loop is never blocked for long.

        Returns:
            True when nothing is left to settle.
        """
        view, steps = self.view, self._steps
        view.read()
        dirty = view.dirty
        assert dirty is not None, "the fold marks changes from the start of a cache"
        marked: tuple[tuple[dict[Any, None], Callable[[Any], None]], ...] = (
            (dirty.objects, self._settle_object),
            (dirty.nodes, self._settle_node),
            (dirty.metrics, self._settle_metric),
            (dirty.pods, self._settle_pod),
            (dirty.gangs, self._settle_gang),
        )
        self._metrics_to_settle.update(dirty.metrics)
        for names, step in marked:
            if names:
                steps.extend((step, name) for name in names)
                names.clear()
        left = -1 if most is None else most
        while steps and left:
            left -= 1
            settle_one, name = steps.popleft()
            settle_one(name)
        if not steps:
            self._all_settled()
            while steps:
                settle_one, name = steps.popleft()
                settle_one(name)
        self._count_moves()
        return not steps

    def _pod_settled(self, uid: str, pod_record: PodRecord | None) -> None:
        """Extension point: a pod changed, and the arrays have its new state."""

    def _settle_gang(self, gang: str) -> None:
        """Extension point: the members or the settings of a gang changed."""

    def _all_settled(self) -> None:
        """Extension point: nothing is left to settle."""

    def _settle_object(self, which: tuple[str, str]) -> None:
        resource, key = which
        self.cluster_objects.set(resource, key, self.view.objects.get(resource, {}).get(key))
        if resource == NODE_TOPOLOGIES:
            for plugin_cache in self._plugin_caches:
                plugin_cache.set_topology(key, self.cluster_objects.topologies.get(key))
        elif resource == DEVICES:
            for plugin_cache in self._plugin_caches:
                plugin_cache.set_device(key, self.cluster_objects.devices.get(key))

    def _settle_node(self, name: str) -> None:
        node_record = self.view.nodes.get(name)
        if node_record is None:
            self._nodes_read.pop(name, None)
            self._capacities.pop(name, None)
            row = self.table.set_node(name, None)
            for plugin_cache in self._plugin_caches:
                plugin_cache.set_node(row, None)
            self._release_row(name)
        elif self._nodes_read.get(name) is node_record.node:
            self.table.set_changed(name, node_record.changed)
        else:
            self._nodes_read[name] = node_record.node
            node = less_reserved(node_with_current_names(node_record.node))
            row = self.table.set_node(name, node, node_record.changed)
            for plugin_cache in self._plugin_caches:
                plugin_cache.set_node(row, node)
            capacity = node_record.node.status.capacity
            if self._capacities.get(name) != capacity:  # which bounds the amounts that a report may have
                self._capacities[name] = capacity
                is_reported = name in self.view.metrics or name in self.view.reports
                if is_reported and name not in self._metrics_to_settle:
                    self._settle_metric(name)

    def _settle_metric(self, name: str) -> None:
        self._metrics_to_settle.discard(name)
        reports = self.view.reports.get(name, {})
        metric_record = newest(self.view.metrics.get(name), reports)
        if self._checks_reports:
            metric_record = believed(metric_record, self._capacities.get(name))
        row = self.table.row(name)
        context = youngest(reports)[0] if reports else ""
        self.table.set_reported(row, context, self.view.reported[name][context] if reports else 0)
        for plugin_cache in self._plugin_caches:
            plugin_cache.set_metric(row, metric_record)
        if metric_record is None:
            self._release_row(name)

    def _settle_pod(self, uid: str) -> None:
        pod_record = self.view.pods.get(uid)
        before = self._assignments.get(uid)
        after = None if pod_record is None else pod_record.assignment(believes_annotations=self._believes_annotations)
        holds = self.cluster_objects.reservations
        if uid in holds.assigned or uid in holds.capacities or (after is not None and after.pod_class.reserves):
            after = holds.counted(uid, after)
        if before is not after and before != after:
            if before is not None:
                del self._assignments[uid]
                self._release(uid, before)
            if after is not None:
                self._assignments[uid] = after
                self._assign(uid, after)
            if (before is not None and before.allocation) or (after is not None and after.allocation):
                for used in holds.note_owner(uid, before, after):
                    if used not in self._uses_to_settle:  # it may have many owners that change at once
                        self._uses_to_settle.add(used)
                        self._steps.append((self._settle_use, used))
        if pod_record is not None and after is not None and pod_record.is_eviction_requested():
            self.evicting[uid] = pod_record
        elif uid in self.evicting:
            del self.evicting[uid]
        self._pod_settled(uid, pod_record)

    def _settle_use(self, uid: str) -> None:
        """Counts a reserve pod with what its owners leave of it."""
        self._uses_to_settle.discard(uid)
        self._settle_pod(uid)

    def _assign(self, uid: str, assignment: Assignment) -> None:
        row, pod_class = self.table.row(assignment.node), assignment.pod_class
        self._moves.append((row, pod_class, +1))
        self.pod_index.move(row, pod_class, terminating=assignment.terminating, sign=+1)
        for plugin_cache in self._caches_of(pod_class):
            plugin_cache.assign(row, uid, assignment)
        there = self.on.get(row)
        if there is None:
            there = self.on[row] = {}
        there[uid] = assignment

    def _release(self, uid: str, assignment: Assignment) -> None:
        row, pod_class = self.table.row(assignment.node), assignment.pod_class
        self._moves.append((row, pod_class, -1))
        self.pod_index.move(row, pod_class, terminating=assignment.terminating, sign=-1)
        for plugin_cache in self._caches_of(pod_class):
            plugin_cache.release(row, uid, assignment)
        del self.on[row][uid]
        if not self.on[row]:
            del self.on[row]
        self._release_row(assignment.node)

    def _caches_of(self, pod_class: PodClass) -> tuple[PluginCache, ...]:
        """Returns the plugin caches in which pods of the class count."""
        caches: tuple[PluginCache, ...] | None = pod_class.cached.get(self)
        if caches is None:
            caches = tuple(each for each in self._plugin_caches if each.applies_to(pod_class))
            pod_class.cached[self] = caches
        return caches

    def _count_moves(self) -> None:
        if self._moves:
            self.table.count(self._moves)
            self._moves.clear()

    def _release_row(self, name: str) -> None:
        self._count_moves()  # a row with pods is not released
        view = self.view
        if name not in view.nodes and name not in view.metrics and name not in view.reports:
            self.table.release(name)
