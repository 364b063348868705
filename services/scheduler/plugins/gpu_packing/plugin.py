"""GpuFragmentation and GpuPacking as plugins of a profile.

    score = 500,000 - 100 * (fragments after the pod - fragments before) / pods of the workload

The formulas are in `kernels/gpu_fragments.py`. The scale is finer than 0..100, so that one of these plugins decides
before all others of its profile. Nodes without a Device have no GPUs.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, for GpuFragmentation.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec
import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_cycle_state import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.kernels.gpu_fragments import fragment_scores
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from services.scheduler.plugins.gpu_packing import FRAGMENTATION_SPEC, PACKING_SPEC
from services.scheduler.plugins.gpu_packing.args import MAX_TYPES, ExpectedPods, PackingArgs
from services.scheduler.plugins.gpu_packing.free_gpus import FreeGpuCache
from services.scheduler.plugins.gpu_packing.pod_types import type_of
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord

_ANY_MODEL = -1
_UNNAMED_MODEL = 62


class _FragmentsScorer(Plugin):
    """Scores nodes by the fragments that a pod would add."""

    packs: ClassVar[bool]

    def __init__(self, args: PackingArgs) -> None:
        self._args = args
        names = sorted({model for each in args.workload for model in each.models})
        self._models = {name: number for number, name in enumerate(names)}

    def new_cache(self) -> PluginCache:
        """GPUs of nodes, by row."""
        return FreeGpuCache(self._args.model_label)

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """The state, which counts the allocations of the cycle."""
        assert isinstance(plugin_cache, FreeGpuCache), "the index hands back what new_cache made"
        expected = self._args.workload or tuple(
            ExpectedPods(each.cpu_milli, each.memory, each.gpus, max(each.share, 1), (), number)
            for each, number in plugin_cache.assigned.items()
            if number > 0
        )
        return _FragmentsState(snapshot, plugin_cache, self._table(expected), self._models, packs=self.packs)

    def _table(self, expected: tuple[ExpectedPods, ...]) -> Int64:
        """[types, (cpu, memory, GPUs, share, models, pods)] of the most frequent types."""
        most = sorted(expected, key=lambda each: (-each.pods, msgspec.structs.astuple(each)))[:MAX_TYPES]
        rows = [
            (each.cpu_milli, each.memory, each.gpus, each.share, self._mask(each.models), each.pods) for each in most
        ]
        return np.array(rows, np.int64).reshape(len(rows), 6)

    def _mask(self, models: tuple[str, ...]) -> int:
        return sum(1 << self._models[model] for model in models) if models else _ANY_MODEL


class GpuFragmentation(_FragmentsScorer):
    """Fragmentation gradient descent, as published."""

    spec: ClassVar[PluginSpec] = FRAGMENTATION_SPEC
    packs: ClassVar[bool] = False


class GpuPacking(_FragmentsScorer):
    """Counts what pods can use of a node, and GPUs that its CPU cannot feed."""

    spec: ClassVar[PluginSpec] = PACKING_SPEC
    packs: ClassVar[bool] = True


class _FragmentsState(PluginCycleState):
    def __init__(
        self,
        snapshot: CycleSnapshot,
        gpu_cache: FreeGpuCache,
        workload: Int64,
        models: Mapping[str, int],
        *,
        packs: bool,
    ) -> None:
        self._snapshot = snapshot
        self._cache = gpu_cache
        free, gpus = gpu_cache.sized(snapshot.size)
        self._free = free.copy()
        numbers = (models.get(gpu_cache.models.get(row, ""), _UNNAMED_MODEL) for row in range(snapshot.size))
        self._node = np.column_stack((gpus, np.fromiter(numbers, np.int64, snapshot.size)))
        self._workload = workload
        with_gpus = workload[workload[:, 2] > 0]
        self._fed = np.array(
            (
                (with_gpus[:, 2] * with_gpus[:, 3] * with_gpus[:, 5]).sum(),
                (with_gpus[:, 0] * with_gpus[:, 5]).sum(),
                workload[:, 5].sum(),
            ),
            np.int64,
        )
        self._packs = packs

    def score(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """The scores; None while no workload is known."""
        if not len(self._workload):
            return None
        snapshot = self._snapshot
        which = np.arange(snapshot.size)[rows]
        request = np.array(type_of(pod_class, self._cache), np.int64)
        scores = np.zeros(len(which), np.int64)
        cpu, memory = (
            snapshot.allocatable[: snapshot.size, column] - snapshot.requested[: snapshot.size, column]
            for column in (snapshot.column("cpu"), snapshot.column("memory"))
        )
        fragment_scores(
            scores, which, cpu, memory, self._free, self._node, request, self._workload, self._fed, self._packs
        )
        return scores

    def assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Takes the GPUs of the pod."""
        self._cache.move(self._free, row, allocation_of(annotations), -1)

    def undo_assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Gives the GPUs of the last pod back."""
        self._cache.move(self._free, row, allocation_of(annotations), +1)

    def release(self, assignment: Assignment, row: int, sign: int) -> None:
        """Gives the GPUs of a running pod back, or takes them again."""
        self._cache.move(self._free, row, allocation_of(assignment.allocation), -sign)
