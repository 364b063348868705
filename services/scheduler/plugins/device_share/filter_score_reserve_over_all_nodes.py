"""Filter, score and reservation of devices over all nodes, for one cycle.

A class is evaluated once for each state that nodes are in: equal devices with equal use.
"""

from collections.abc import Callable, Mapping
from copy import copy

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.framework.plugin_cycle_state import PluginCycleState
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64, Rows
from services.scheduler.plugins.device_share.admission_to_one_node import (
    DeviceAdmission,
    DeviceSettings,
    matched_templates,
)
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of, annotation_for
from services.scheduler.plugins.device_share.device_usage import Allocation, DeviceUsage, Lifted
from services.scheduler.plugins.device_share.node_cache import CachedDevices, DeviceCache, Templates
from services.scheduler.plugins.device_share.pod_device_requests import RequestedDevices
from services.scheduler.plugins.device_share.requests_cached_by_class import RequestsByClass
from services.scheduler.plugins.device_share.results_by_state import ResultsByState
from services.scheduler.plugins.helper.allocations_of_cycle import AllocationsOfCycle
from services.scheduler.plugins.helper.rejections import CycleRejections, Rejection
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from shared.domain.reservation import RESTRICTED
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
    ) -> None:
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
        self._numbers: Int64 | None = None  # of the states by row; 0: not computed since a step changed it

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns True where the class requests devices and a node has some, whatever the requested amounts."""
        requested = self._requests.of(pod_class)
        return requested is not None and (isinstance(requested, Rejection) or self._any_known)

    def scores_class(self, pod_class: PodClass) -> bool:
        """Returns True where the class requests devices and a node has some."""
        return self._any_known and self._requests.of(pod_class) is not None

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
        ids = np.array([0, *map(self._rejections.id_of, results.rejections)], np.int64)
        found: Int64 = ids[codes]
        return found

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
        return self._result_of(self._admission(requested, row)) if self._known[row] else 0

    def score(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """Least or most allocated, summed over the types of devices; 0 where the node has no Device."""
        requested = self._requests.of(pod_class)
        if requested is None or isinstance(requested, Rejection) or self._is_predicted:
            return None
        scores = self._cache.results.of(requested, self._templates(requested)).scores
        return self._by_state(requested, rows, len(self._known[rows]), scores, _score_of)

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The score of one node."""
        requested = self._requests.of(pod_class)
        if requested is None or isinstance(requested, Rejection) or not self._known[row] or self._is_predicted:
            return 0
        return self._admission(requested, row).score

    def _result_of(self, admission: DeviceAdmission) -> int:
        rejection = admission.rejection
        return 0 if rejection is None else self._rejections.id_of(rejection)

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
        allocation = self._reserved(requested, row)
        if isinstance(allocation, Rejection):
            return self._rejections.id_of(allocation)
        return {DEVICE_ALLOCATED: annotation_for(pod_class.pod, allocation, self._cache.devices(row).ids)}

    def _reserved(self, requested: RequestedDevices, row: int) -> Allocation | Rejection:
        """The devices of a pod; of the Reservation that it uses, those that this holds come first."""
        holds = self._snapshot.holds
        drawn = holds.drawn
        others = [held for uid in drawn.others if (held := allocation_of(holds.assignment(uid).allocation))]
        left = allocation_of(holds.assignment(drawn.uid).allocation) if drawn.uid else ()
        if not left and not others:
            return self._admission(requested, row).reserve()
        node = self._allocations.state_with(row, others).node
        admission = DeviceAdmission(requested.requests, node, self._settings, self._templates(requested))
        within = DeviceUsage((left,)).used
        is_restricted = bool(left) and holds.table.capacities[drawn.uid].reservation.policy == RESTRICTED
        preferred = {type_: frozenset(minors) for type_, minors in within.items()}
        return admission.choose(None, Lifted(required=within if is_restricted else {}, preferred=preferred), final=True)

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
