"""Filter, score and reservation of devices over all nodes, for one cycle.

A class is evaluated once for each state that nodes are in: equal devices with equal use.
"""

from collections.abc import Callable, Mapping
from copy import copy
from typing import cast

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64, Rows
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of, annotation_for
from services.scheduler.plugins.device_share.device_plugin_annotations import device_plugin_annotations
from services.scheduler.plugins.device_share.device_usage import Allocation, DeviceUsage, Lifted
from services.scheduler.plugins.device_share.filter_score_reserve_on_one_node import (
    DeviceAdmission,
    DeviceSettings,
    matched_templates,
)
from services.scheduler.plugins.device_share.node_cache import CachedDevices, DeviceCache, Templates
from services.scheduler.plugins.device_share.offer_below_numa_nodes import DeviceOffer
from services.scheduler.plugins.device_share.pod_device_requests import RequestedDevices
from services.scheduler.plugins.device_share.requests_cached_by_class import RequestsByClass
from services.scheduler.plugins.device_share.results_by_state import ResultsByState
from services.scheduler.plugins.helper.allocations_of_cycle import AllocationsOfCycle
from services.scheduler.plugins.helper.numa_hint_provider_interface import ANY_NUMA, AffinitySource, numas_in
from services.scheduler.plugins.helper.rejections import CycleRejections, Rejection
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from shared.domain.reservation import RESTRICTED
from shared.domain.scheduler_gates import DEVICE_PLUGINS
from shared.kube.system_annotations import DEVICE_ALLOCATED

_NO_TEMPLATE = Rejection((Reason("NoGpuTemplate"),), unresolvable=True)


class DeviceState(PluginCycleState):
    """State of DeviceShare for one cycle: the nodes as cached, with the allocations that the cycle made and released."""

    def __init__(
        self,
        settings: DeviceSettings,
        requests: RequestsByClass,
        rejections: CycleRejections,
        snapshot: CycleSnapshot,
        device_cache: DeviceCache,
        now_ns: int,
    ) -> None:
        self._now_ns = now_ns
        self._for_device_plugins = DEVICE_PLUGINS in snapshot.cluster_objects.gates
        self._settings = settings
        self._requests = requests
        self._rejections = rejections
        self._gpu_templates = snapshot.cluster_objects.gpu_templates
        self._cache = device_cache
        self._snapshot = snapshot
        self._known: Bools = device_cache.sized(snapshot.size) & snapshot.table.alive[: snapshot.size]
        self._any_known = bool(self._known.any())
        self._all_known = bool(self._known[snapshot.table.alive[: snapshot.size]].all())
        self._is_predicted = False
        self._allocations: AllocationsOfCycle[Allocation, CachedDevices] = AllocationsOfCycle(device_cache)
        self._affinities: dict[str, AffinitySource] = {}
        self._numbers: Int64 | None = None  # of the states by row; 0: not computed since a step changed it

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns True where the class requests devices and a node has some, whatever the requested amounts."""
        requested = self._requests.of(pod_class)
        return requested is not None and (isinstance(requested, Rejection) or self._any_known)

    def scores_class(self, pod_class: PodClass) -> bool:
        """Returns True where the class requests devices and a node has some."""
        return self._any_known and self._requests.of(pod_class) is not None

    # devices below NUMA nodes

    def join(self, scheduler: str, others: Mapping[str, PluginCycleState]) -> None:
        """Gets NodeNUMAResource, which merges the hints of devices with those of its own resources."""
        for other in others.values():
            self._affinities[scheduler] = cast("AffinitySource", other)

    def offers_zones(self, pod_class: PodClass) -> bool:
        """Returns True where the class requests devices, a node has some, and the arguments let NUMA nodes count."""
        requested = self._requests.of(pod_class)
        if requested is None or isinstance(requested, Rejection) or not (self._settings.aligns and self._any_known):
            return False
        templates = self._templates(requested)
        return not self._is_predicted and (templates is None or bool(templates))

    def offer_numbers(self, rows: Int64) -> Int64:
        """[rows]: the numbers of the nodes' states; 0 for nodes without a Device."""
        numbers = np.zeros(len(rows), np.int64)
        places = np.flatnonzero(self._known[rows])
        numbers[places] = self._numbers_in(rows[places])
        return numbers

    def zone_offer(self, pod_class: PodClass, row: int) -> DeviceOffer | None:
        """The devices of a node; those of the Reservation that the next pod uses count as free for it."""
        requested = self._requests.of(pod_class)
        if requested is None or isinstance(requested, Rejection) or not self._known[row]:
            return None
        drawn = self._drawn(requested, row)
        if drawn is not None:
            return DeviceOffer(object(), *drawn)
        templates = self._templates(requested)
        kinds = () if templates is None else tuple(templates.items())
        return DeviceOffer((self._allocations.state(row).number, requested.key, kinds), self._admission(requested, row))

    def _aligned(self, pod_class: PodClass, rows: Rows) -> tuple[AffinitySource, Bools] | None:
        """Returns the source of affinities, and bool[rows]: nodes with devices whose affinity is decided."""
        source = self._affinities.get(pod_class.scheduler)
        if source is None or not self.offers_zones(pod_class):
            return None
        fixed = source.fixed_rows(pod_class)
        if fixed is None or not (aligned := fixed[rows] & self._known[rows]).any():
            return None
        return source, aligned

    # filter and score

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """The filter results; None for pods without devices."""
        requested = self._requests.of(pod_class)
        if requested is None or self._is_predicted:
            return None
        count = len(self._known[rows])
        if isinstance(requested, Rejection):
            return np.full(count, self._rejections.id_of(requested), np.int64)
        templates = self._templates(requested)
        if templates is not None and not templates:
            return np.full(count, self._rejections.id_of(_NO_TEMPLATE), np.int64)
        results = self._cache.results.of(requested, templates)
        codes = self._by_state(requested, rows, count, results.filters, results.code_of)
        if (found := self._aligned(pod_class, rows)) is not None:
            # Devices below the decided NUMA nodes have been tried with it.
            unfit = self._by_state(requested, rows, count, results.unfit, results.unfit_code)
            codes = np.where(found[1], unfit, codes)
        ids = np.array([0, *map(self._rejections.id_of, results.rejections)], np.int64)
        refused: Int64 = ids[codes]
        return refused

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        """The filter result of one node."""
        requested = self._requests.of(pod_class)
        if requested is None or self._is_predicted:
            return 0
        if isinstance(requested, Rejection):
            return self._rejections.id_of(requested)
        templates = self._templates(requested)
        if templates is not None and not templates:
            return self._rejections.id_of(_NO_TEMPLATE)
        if not self._known[row]:
            return 0
        admission = self._admission(requested, row)
        is_aligned = self._aligned(pod_class, np.array([row])) is not None
        return self._rejections.id_of(admission.unfit if is_aligned else admission.rejection)

    def score(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """Least or most allocated, summed over the types of devices; 0 where the node has no Device."""
        requested = self._requests.of(pod_class)
        if requested is None or isinstance(requested, Rejection) or self._is_predicted:
            return None
        scores = self._cache.results.of(requested, self._templates(requested)).scores
        found = self._by_state(requested, rows, len(self._known[rows]), scores, _score_of)
        if (aligned := self._aligned(pod_class, rows)) is not None:
            source, places = aligned[0], np.flatnonzero(aligned[1])
            which = places + (rows.start or 0) if isinstance(rows, slice) else np.asarray(rows)[places]
            masks = source.affinities(pod_class, which)
            pairs = np.stack((masks, self._numbers_in(which)), axis=1)
            _, first, pair_of = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
            within = [self._score_within(requested, int(which[each]), int(masks[each])) for each in first.tolist()]
            found[places] = np.array(within, np.int64)[pair_of.reshape(-1)]
        return found

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The score of one node."""
        requested = self._requests.of(pod_class)
        if requested is None or isinstance(requested, Rejection) or not self._known[row] or self._is_predicted:
            return 0
        aligned = self._aligned(pod_class, np.array([row]))
        if aligned is None:
            return self._admission(requested, row).score
        return self._score_within(requested, row, int(aligned[0].affinities(pod_class, np.array([row]))[0]))

    def _score_within(self, requested: RequestedDevices, row: int, mask: int) -> int:
        """The score of a node by its devices below some NUMA nodes."""
        found = self._admission(requested, row).score_within(numas_in(mask))
        return 0 if isinstance(found, Rejection) else found

    def _by_state(
        self,
        requested: RequestedDevices,
        rows: Rows,
        count: int,
        known: ResultsByState,
        of_state: Callable[[DeviceAdmission], int],
    ) -> Int64:
        """[rows]: `of_state` for the state that each of the nodes is in; 0 for nodes without a Device.

        Args:
            known: those of states that were computed before.
        """
        places = np.flatnonzero(self._known[rows])
        found = np.zeros(count, np.int64)
        if not len(places):
            return found
        which = places + (rows.start or 0) if isinstance(rows, slice) else np.asarray(rows)[places]
        settings, templates = self._settings, self._templates(requested)

        def of_place(place: int) -> int:
            state = self._allocations.state(int(which[place]))
            return of_state(state.admission(requested, settings, templates))

        found[places] = known.of(self._numbers_in(which), of_place)
        return found

    def _numbers_in(self, rows: Int64) -> Int64:
        """[rows]: the numbers of the nodes' states, with the steps of the cycle."""
        if self._numbers is None:
            self._numbers = self._cache.state_numbers(np.flatnonzero(self._known)).copy()
            for row in self._allocations.rows():
                self._numbers[row] = 0
        numbers = self._numbers[rows]
        for place in np.flatnonzero(numbers == 0).tolist():
            row = int(rows[place])
            numbers[place] = self._numbers[row] = self._allocations.state(row).number
        return numbers

    # look-ahead

    def unpredictable(self, pod_class: PodClass) -> Bools | None:
        """Nodes with a Device."""
        return self._known if self.applies_to(pod_class) else None

    def can_predict(self, pod_class: PodClass) -> bool:
        """Returns True where pods of the class allocate nothing on some nodes."""
        requested = self._requests.of(pod_class)
        return requested is None or not (isinstance(requested, Rejection) or self._all_known)

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> PluginCycleState | None:  # noqa: ARG002
        """The state with one more pod of the class on every node that is not `unpredictable`, and these alone."""
        if not self.can_predict(pod_class):
            return None
        fuller = copy(self)
        fuller._is_predicted = True  # noqa: SLF001
        return fuller

    # allocations

    def reserve(self, pod_class: PodClass, row: int) -> Mapping[str, str] | int:
        """Devices for a pod of the class, as an annotation; none where the node has no Device."""
        requested = self._requests.of(pod_class)
        if requested is None or isinstance(requested, Rejection) or not self._known[row]:
            return {}
        source = self._affinities.get(pod_class.scheduler)
        mask = ANY_NUMA if source is None or not self._settings.aligns else source.affinity_to_reserve(pod_class, row)
        allocation = self._reserved(requested, row, numas_in(mask))
        if isinstance(allocation, Rejection):
            return self._rejections.id_of(allocation)
        devices = self._cache.devices(row)
        found = {DEVICE_ALLOCATED: annotation_for(pod_class.pod, allocation, devices.ids)}
        if self._for_device_plugins:
            vendor, model = devices.vendor, devices.model
            more = device_plugin_annotations(allocation, vendor, model, devices.ids, self._now_ns)
            if isinstance(more, Rejection):
                return self._rejections.id_of(more)
            found |= more
        return found

    def _reserved(self, requested: RequestedDevices, row: int, numas: frozenset[int] | None) -> Allocation | Rejection:
        """The devices of a pod, below some NUMA nodes; of the Reservation that it uses, those that this holds come first."""
        drawn = self._drawn(requested, row)
        if drawn is None:
            return self._admission(requested, row).reserve(numas)
        admission, lifted = drawn
        return admission.choose(numas, lifted, final=True)

    def _drawn(self, requested: RequestedDevices, row: int) -> tuple[DeviceAdmission, Lifted] | None:
        """Returns the admission with devices of a Reservation; None where the next pod uses none that has some."""
        holds = self._snapshot.holds
        drawn = holds.drawn
        others = [held for uid in drawn.others if (held := allocation_of(holds.assignment(uid).allocation))]
        left = allocation_of(holds.assignment(drawn.uid).allocation) if drawn.uid else ()
        if not left and not others:
            return None
        node = self._allocations.state_with(row, others).node
        admission = DeviceAdmission(requested.requests, node, self._settings, self._templates(requested))
        within = DeviceUsage((left,)).used
        is_restricted = bool(left) and holds.table.capacities[drawn.uid].reservation.policy == RESTRICTED
        preferred = {type_: frozenset(minors) for type_, minors in within.items()}
        return admission, Lifted(required=within if is_restricted else {}, preferred=preferred)

    def assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Counts the devices of the pod."""
        if allocation := allocation_of(annotations):
            self._allocations.assume(row, allocation)
            self._forget_number(row)

    def undo_assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Counts the devices of the last pod no longer."""
        if allocation_of(annotations):
            self._allocations.undo_assume(row)
            self._forget_number(row)

    def release(self, assignment: Assignment, row: int, sign: int) -> None:
        """Frees the devices of a running pod, or counts them again."""
        if allocation := allocation_of(assignment.allocation):
            self._allocations.release(row, allocation, sign)
            self._forget_number(row)

    def _forget_number(self, row: int) -> None:
        if self._numbers is not None:
            self._numbers[row] = 0

    def _admission(self, requested: RequestedDevices, row: int) -> DeviceAdmission:
        return self._allocations.state(row).admission(requested, self._settings, self._templates(requested))

    def _templates(self, requested: RequestedDevices) -> Templates:
        return matched_templates(requested.requests, self._settings, self._gpu_templates)


def _score_of(admission: DeviceAdmission) -> int:
    return admission.score
