"""NodeResourcesFit: a pod needs room for what it asks for; and nodes are preferred by how full they would be.

Source: spec/scheduler-core.md 2.2, 2.3; upstream Kubernetes pkg/scheduler/framework/plugins/noderesources.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.ask import PodAsk
from services.scheduler.change import Change
from services.scheduler.framework import Ledger, Normalize, Room, Rows, Trial
from services.scheduler.percents import percents
from services.scheduler.plugins.fit_args import ALWAYS_SCORED, LEAST, MOST, FitArgs
from services.scheduler.pods import PodFacts
from services.scheduler.reasons import Reason

Int64 = NDArray[np.int64]

_TOO_MANY_PODS = 1  # bit 0 of a verdict; bit i + 1 stands for the i-th resource of the class
_TOO_SMALL = 1 << 61  # set besides when the node is too small even with nothing on it
_MOST_RESOURCES = 60
_COUNTED_WITH_DEFAULTS = {"cpu": 0, "memory": 1}  # resource -> column of Room.scored
_MILLI_POINTS = 10  # a shape's scores go to 10, MaxNodeScore is 100
_ROOM = frozenset((Change.POD_RELEASED, Change.ALLOCATABLE))


class NodeResourcesFit:
    """Refuses nodes without room, naming every resource that is short; scores by the configured strategy."""

    name: ClassVar[str] = "NodeResourcesFit"
    static: ClassVar[bool] = False
    wide: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    cures: ClassVar[Mapping[str, frozenset[Change]]] = {"TooManyPods": _ROOM, "InsufficientResource": _ROOM}

    def __init__(self, args: FitArgs) -> None:
        self.args = args

    def new_ledger(self) -> None:
        """No account of its own."""

    def trial(self, room: Room, ledger: Ledger | None, now_ns: int) -> Trial:  # noqa: ARG002
        """A verdict is a set of bits: too many pods, and one for each resource that is short."""
        return FitTrial(self, room)

    def reasons(self, ask: PodAsk, verdict: int) -> tuple[Reason, ...]:
        """One reason for each bit."""
        reasons = [Reason("TooManyPods")] if verdict & _TOO_MANY_PODS else []
        names = [name for name, _ in self.checked(ask)]
        reasons += [Reason("InsufficientResource", name) for bit, name in enumerate(names) if verdict >> (bit + 1) & 1]
        return tuple(reasons)

    def hopeless(self, ask: PodAsk, verdict: int) -> bool:  # noqa: ARG002
        """Whether the node is too small even with nothing on it."""
        return bool(verdict & _TOO_SMALL)

    def checked(self, ask: PodAsk) -> tuple[tuple[str, int], ...]:
        """The resources that the filter looks at, with the amounts asked for, in the order of the verdict's bits."""
        checked: tuple[tuple[str, int], ...] | None = ask.memo.get(self)
        if checked is None:
            wanted = sorted((name, size) for name, size in ask.request.items() if size > 0 and not self._ignored(name))
            checked = ask.memo[self] = tuple(wanted[:_MOST_RESOURCES])
        return checked

    def _ignored(self, resource: str) -> bool:
        """Only extended resources (a domain other than kubernetes.io) can be ignored."""
        group, slash, _ = resource.partition("/")
        if not slash or group == "kubernetes.io" or group.endswith(".kubernetes.io"):
            return False
        return resource in self.args.ignored_resources or group in self.args.ignored_resource_groups


class FitTrial:
    """NodeResourcesFit for one round."""

    def __init__(self, plugin: NodeResourcesFit, room: Room) -> None:
        self._plugin = plugin
        self._room = room
        strategy = plugin.args.scoring_strategy
        self._resources = tuple((resource.name, resource.weight) for resource in strategy.resources)
        self._type = strategy.type
        ratio = strategy.requested_to_capacity_ratio
        self._shape = [(p.utilization, p.score * _MILLI_POINTS) for p in ratio.shape] if ratio else []

    def filter(self, ask: PodAsk, rows: Rows) -> Int64:
        """Bits of what is short: pods + 1 > allowed; request > allocatable - requested, a resource."""
        room, table = self._room, self._room.table
        short = (room.pods[rows] >= table.allowed_pods[: room.size][rows]).astype(np.int64)
        for bit, (name, size) in enumerate(self._plugin.checked(ask)):
            column = table.column(name)
            if column >= room.requested.shape[1]:  # no node has ever had it
                short |= 2 << bit | _TOO_SMALL
                continue
            capacity = table.allocatable[: room.size, column][rows]
            lacks = capacity - room.requested[:, column][rows] < size
            if lacks.any():
                short |= lacks.astype(np.int64) << (bit + 1)
                short[capacity < size] |= _TOO_SMALL
        return short

    def score(self, ask: PodAsk, rows: Rows) -> Int64:
        """Weighted mean over the configured resources of what the strategy gives each, 0..100.

        A resource that a node does not have, and one beyond cpu, memory and ephemeral-storage that the pod does not ask
        for, counts neither above nor below the line.
        """
        room, table = self._room, self._room.table
        count = len(room.pods[rows])
        total, everywhere = np.zeros(count, np.int64), 0
        weights: Int64 | None = None  # where not every node has the resource
        for name, weight in self._resources:
            asked = ask.scored.get(name, 0)
            column = table.columns.get(name)
            if column is None or column >= room.requested.shape[1] or (not asked and name not in ALWAYS_SCORED):
                continue
            capacity = table.allocatable[: room.size, column][rows]
            default_column = _COUNTED_WITH_DEFAULTS.get(name)
            taken = room.requested[:, column] if default_column is None else room.scored[:, default_column]
            part, counts = self._part(taken[rows] + asked, capacity)
            if counts.all():
                total += part * weight
                everywhere += weight
            else:
                total += np.where(counts, part * weight, 0)
                weights = counts * weight + (0 if weights is None else weights)
        divisor = max(everywhere, 1) if weights is None else np.maximum(weights + everywhere, 1)
        if self._type in (LEAST, MOST):
            return total // divisor
        mean = total / divisor
        return np.floor(mean + 0.5).astype(np.int64)  # the parts are not negative, so this rounds halves away from zero

    def filter_at(self, ask: PodAsk, row: int) -> int:
        """The bits for one node."""
        room, table = self._room, self._room.table
        short = int(room.pods.item(row) >= table.allowed_pods.item(row))
        for bit, (name, size) in enumerate(self._plugin.checked(ask)):
            column = table.column(name)
            free = capacity = 0
            if column < room.requested.shape[1]:
                capacity = table.allocatable.item(row, column)
                free = capacity - room.requested.item(row, column)
            if free < size:
                short |= 2 << bit
            if capacity < size:
                short |= _TOO_SMALL
        return short

    def score_at(self, ask: PodAsk, row: int) -> int:
        """The score of one node."""
        if self._type != LEAST:
            return int(self.score(ask, np.array([row]))[0])
        room, table = self._room, self._room.table
        total = weights = 0
        for name, weight in self._resources:
            asked = ask.scored.get(name, 0)
            column = table.columns.get(name)
            if column is None or column >= room.requested.shape[1] or (not asked and name not in ALWAYS_SCORED):
                continue
            capacity = table.allocatable.item(row, column)
            if capacity <= 0:
                continue
            default_column = _COUNTED_WITH_DEFAULTS.get(name)
            taken = (
                room.requested.item(row, column) if default_column is None else room.scored.item(row, default_column)
            )
            wanted = taken + asked
            if wanted <= capacity:
                total += (capacity - wanted) * 100 // capacity * weight
            weights += weight
        return total // weights if weights else 0

    def place(self, pod: PodFacts, ask: PodAsk, row: int) -> None:
        """The round's room counts the pod."""

    def after(self, ask: PodAsk, room: Room) -> "FitTrial":  # noqa: ARG002
        """The same in a fuller room."""
        return FitTrial(self._plugin, room)

    def as_foreseen(self) -> bool:
        """All of it is in the room."""
        return True

    def _part(self, wanted: Int64, capacity: Int64) -> tuple[Int64, NDArray[np.bool_]]:
        """One resource's score a node, and whether it counts there."""
        exists = capacity > 0
        divisor = np.maximum(capacity, 1)
        if self._type == LEAST:
            return percents(np.maximum(capacity - wanted, 0), divisor), exists
        used = np.minimum(wanted, capacity)
        if self._type == MOST:
            return percents(used, divisor), exists
        utilised = np.where(exists, percents(used, divisor), 100)
        part = self._on_shape(utilised)
        return part, exists & (part > 0)

    def _on_shape(self, utilised: Int64) -> Int64:
        """The piecewise linear function at these percents, each step truncated toward zero."""
        first_at, first = self._shape[0]
        value = np.full_like(utilised, self._shape[-1][1])
        for (low_at, low), (high_at, high) in reversed(list(zip(self._shape, self._shape[1:], strict=False))):
            rise = (high - low) * (utilised - low_at)
            step = np.sign(rise) * (np.abs(rise) // (high_at - low_at))
            value = np.where(utilised <= high_at, low + step, value)
        return np.where(utilised <= first_at, first, value)
