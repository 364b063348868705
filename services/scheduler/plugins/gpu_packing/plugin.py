"""GpuFragmentation and GpuPacking as plugins of a profile.

    packing: score = 500,000 - 100 * (fragments after the pod - fragments before) / pods of the workload
    FGD:     score = 2^20 * floor(100 / (1 + exp(-gain))) + place
             gain  = (fragments before - fragments after) / pods of the workload, in GPUs
             place = of the node in an order that is the same for all pods: the upper 20 bits of the hash of its name

The formulas are in `kernels/gpu_fragments.py`. The scale is finer than 0..100, so that one of these plugins decides
before all others of its profile. Nodes without a Device have no GPUs.

FGD owes much to the coarse scale and the fixed order of its published form: nodes whose fragments grow by nearly
the same amount are filled one after the other. By the exact gain it allocates about a point less of openb's GPUs, and
five points less where ties are broken for each pod anew. It counts CPU, but no memory, and the most frequent types of
pods up to 95 % of all.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, for GpuFragmentation, and the simulator that its
authors published (hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin/fgd_score.go, pkg/utils/frag.go).
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import msgspec
import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.kernels.gpu_fragments import MIDDLE, STEPS, UNFIT, UNKNOWN, fragment_scores
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from services.scheduler.plugins.gpu_packing import FRAGMENTATION_SPEC, PACKING_SPEC
from services.scheduler.plugins.gpu_packing.args import (
    MAX_TYPES,
    MAX_TYPICAL_TYPES,
    TYPICAL_PERCENT,
    ExpectedPods,
    PackingArgs,
)
from services.scheduler.plugins.gpu_packing.free_gpus import FreeGpuCache
from services.scheduler.plugins.gpu_packing.pod_types import type_of
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord

_PLACES = 20
"""Bits of a node's place in the order."""
_EXACT = 100 * STEPS
"""Steps of the exact score for one GPU."""
_LEVELS = np.array([math.ceil(_EXACT * math.log(level / (100 - level))) for level in range(1, 100)], np.int64)
"""Gains, in steps, from which on FGD's score is 1, 2, ..., 99."""
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
        if not self.packs:
            expected = _without_memory(expected)
        most = sorted(expected, key=lambda each: (-each.pods, msgspec.structs.astuple(each)))
        most = most[:MAX_TYPES] if self.packs else _typical(most)
        rows = [
            (each.cpu_milli, each.memory, each.gpus, each.share, self._mask(each.models), each.pods) for each in most
        ]
        return np.array(rows, np.int64).reshape(len(rows), 6)

    def _mask(self, models: tuple[str, ...]) -> int:
        return sum(1 << self._models[model] for model in models) if models else _ANY_MODEL


def levels_of(gains: Int64) -> Int64:
    """Returns floor(100 / (1 + exp(-gain))) of gains in hundredths of a percent of one GPU, from the same table on every
    machine.
    """
    levels: Int64 = np.searchsorted(_LEVELS, gains, side="right").astype(np.int64)
    return levels


def _without_memory(expected: tuple[ExpectedPods, ...]) -> tuple[ExpectedPods, ...]:
    """Returns the types by all but their memory."""
    counted: Counter[ExpectedPods] = Counter()
    for each in expected:
        counted[msgspec.structs.replace(each, memory=0, pods=1)] += each.pods
    return tuple(msgspec.structs.replace(each, pods=number) for each, number in counted.items())


def _typical(types: list[ExpectedPods]) -> list[ExpectedPods]:
    """Returns the first types that together are at least so many percent of the pods as FGD counts."""
    total, counted = sum(each.pods for each in types), 0
    for number, each in enumerate(types, 1):
        counted += each.pods
        if counted * 100 >= total * TYPICAL_PERCENT or number == MAX_TYPICAL_TYPES:
            return types[:number]
    return types


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
        self._before = np.full((snapshot.size, 3), UNKNOWN, np.int64)
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
            scores, which, cpu, memory, self._free, self._node, request, self._workload, self._fed, self._before,
            self._packs,
        )  # fmt: skip
        return scores if self._packs else self._by_level_and_place(scores, which)

    def _by_level_and_place(self, scores: Int64, rows: Int64) -> Int64:
        """FGD's scores, from the exact ones."""
        levels = levels_of(scores - MIDDLE)
        places = (self._snapshot.table.hashes[rows] >> np.uint64(64 - _PLACES)).astype(np.int64)
        found: Int64 = np.where(scores == UNFIT, UNFIT, (levels << _PLACES) + places + 1)
        return found

    def assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Takes the GPUs of the pod."""
        self._move(row, annotations, -1)

    def undo_assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Gives the GPUs of the last pod back."""
        self._move(row, annotations, +1)

    def release(self, assignment: Assignment, row: int, sign: int) -> None:
        """Gives the GPUs of a running pod back, or takes them again."""
        self._move(row, assignment.allocation, -sign)

    def _move(self, row: int, annotations: Mapping[str, str] | None, sign: int) -> None:
        self._cache.move(self._free, row, allocation_of(annotations), sign)
        self._before[row] = UNKNOWN
