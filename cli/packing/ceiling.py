"""An upper bound of the GPU capacity that pods can have on given nodes: the ceiling for every packing policy.

A linear program. Pods of a group may be divided among nodes, and nodes of a group share their CPU and memory; a GPU is
divided by patterns, the lists of shares that fit on one. What pods get on real nodes is never more:

    maximise   sum_t gpus[t] * share[t] * sum_k x[t, k]
    x[t, k]    pods of group t on nodes of group k, only where the pods may run
    y[p, k]    GPUs of group k that are divided by pattern p

    required[t] <= sum_k x[t, k] <= required[t] + more[t]
    sum_t cpu[t] * x[t, k] <= nodes[k] * cpu[k]                     and the same for memory
    sum_{t with whole GPUs} gpus[t] * x[t, k] + sum_p y[p, k] <= nodes[k] * gpus[k]
    sum_{t with share s} x[t, k] <= sum_p (number of s in p) * y[p, k]
    x[t, k] <= nodes[k] * floor(gpus[k] / gpus[t])                  for pods with several GPUs

There are too many patterns to list: those that would improve the bound are found from the dual prices of the shares, by
a knapsack for each group of nodes (column generation), until none would.

The solver is HiGHS, an optional extra (docs/adr/0002-dependencies.md).

Source: Gilmore and Gomory, A Linear Programming Approach to the Cutting-Stock Problem, 1961, for the patterns.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shared.errors import KoordError

WHOLE = 100
_TOLERANCE = 1e-6
_MOST_ROUNDS = 60

Pattern = tuple[tuple[int, int], ...]
"""(share, how often), for shares in percent that fit on one GPU together."""


class NoSolver(KoordError):
    """The optional extra is not installed."""

    def __init__(self) -> None:
        super().__init__("the ceiling needs the solver HiGHS: pip install 'koordstream[ceiling]'")


class NodeGroup(NamedTuple):
    """Nodes with equal amounts.

    Attributes:
        cpu_milli, memory, gpus: of each; memory in bytes.
    """

    number: int
    cpu_milli: int
    memory: int
    gpus: int


class PodGroup(NamedTuple):
    """Equal pods.

    Attributes:
        gpus, share: GPUs of each pod, and the percent of each.
        node_groups: indices of the groups that they may run on.
        required: pods that have to be placed; more: further pods that may be.
    """

    cpu_milli: int
    memory: int
    gpus: int
    share: int
    node_groups: frozenset[int]
    required: float
    more: float


def ceiling_percent(nodes: Sequence[NodeGroup], pods: Sequence[PodGroup]) -> float | None:
    """Returns the bound in percent of one GPU; None where the required pods cannot all be placed.

    Raises:
        NoSolver: HiGHS is not installed.
    """
    program = _Program(nodes, pods)
    for _ in range(_MOST_ROUNDS):
        if not program.solve():
            return None
        if not program.add_patterns():
            break
    return program.objective()


def is_available() -> bool:
    """Returns True where the solver is installed."""
    try:
        import highspy  # noqa: F401
    except ImportError:
        return False
    return True


class _Program:
    """The linear program with the patterns found up to now. A share that no pattern has yet gets one at the start."""

    def __init__(self, nodes: Sequence[NodeGroup], pods: Sequence[PodGroup]) -> None:
        try:
            import highspy
        except ImportError as error:
            raise NoSolver from error
        self._nodes = nodes
        highs: Any = highspy
        self._status = highs.HighsModelStatus
        self._solver = highs.Highs()
        self._solver.setOptionValue("output_flag", False)  # noqa: FBT003
        self._solver.changeObjectiveSense(highs.ObjSense.kMaximize)
        self._infinity = highs.kHighsInf
        shares = sorted({each.share for each in pods if each.gpus == 1 and each.share < WHOLE})
        self._rows = 0
        self._cpu, self._memory, self._cards = ([self._row(0, size) for size in _totals(nodes, of)] for of in range(3))
        self._share_rows = {(share, k): self._row(-self._infinity, 0) for share in shares for k in range(len(nodes))}
        self._known: set[tuple[int, Pattern]] = set()
        self._add_column(0, 0, {})  # HiGHS does not look at the rows of a program without columns
        for each in pods:
            self._add_pods(each)
        for share in shares:
            for k in range(len(nodes)):
                self._add_pattern(k, ((share, WHOLE // share),))

    def solve(self) -> bool:
        """Solves it; returns False where the required pods cannot all be placed."""
        self._solver.run()
        return bool(self._solver.getModelStatus() == self._status.kOptimal)

    def objective(self) -> float:
        """Returns the bound."""
        return float(self._solver.getObjectiveValue())

    def add_patterns(self) -> bool:
        """Adds the best pattern for each group of nodes; returns False where none would improve the bound."""
        duals = self._solver.getSolution().row_dual
        found = False
        for k in range(len(self._nodes)):
            # Both kinds of rows are limits from above, so that their duals have one sign, which depends on the solver.
            prices = {share: abs(duals[row]) for (share, at), row in self._share_rows.items() if at == k}
            value, pattern = best_pattern(prices)
            if pattern and value > abs(duals[self._cards[k]]) + _TOLERANCE:
                found = self._add_pattern(k, pattern) or found
        return found

    def _row(self, lower: float, upper: float) -> int:
        self._solver.addRow(lower, upper, 0, [], [])
        self._rows += 1
        return self._rows - 1

    def _add_pods(self, each: PodGroup) -> None:
        total = self._row(each.required, each.required + each.more)
        for k in sorted(each.node_groups):
            group = self._nodes[k]
            if each.gpus > group.gpus:
                continue
            entries = {total: 1.0, self._cpu[k]: each.cpu_milli, self._memory[k]: _mebibytes(each.memory)}
            most = self._infinity
            if each.gpus == 1 and each.share < WHOLE:
                entries[self._share_rows[each.share, k]] = 1.0
            elif each.gpus:
                entries[self._cards[k]] = float(each.gpus)
                most = float(group.number * (group.gpus // each.gpus))
            self._add_column(each.gpus * each.share, most, entries)

    def _add_pattern(self, k: int, pattern: Pattern) -> bool:
        if (k, pattern) in self._known:
            return False
        self._known.add((k, pattern))
        entries = {self._share_rows[share, k]: -float(number) for share, number in pattern}
        self._add_column(0, self._infinity, {self._cards[k]: 1.0, **entries})
        return True

    def _add_column(self, gain: float, most: float, entries: Mapping[int, float]) -> None:
        kept = {row: float(size) for row, size in entries.items() if size}
        self._solver.addCol(float(gain), 0.0, most, len(kept), list(kept), list(kept.values()))


def best_pattern(prices: Mapping[int, float]) -> tuple[float, Pattern]:
    """Returns the list of shares that fit on one GPU with the highest sum of prices, and this sum."""
    values, last = [0.0] * (WHOLE + 1), [0] * (WHOLE + 1)
    for size in range(1, WHOLE + 1):
        values[size] = values[size - 1]
        for share, price in prices.items():
            if share <= size and values[size - share] + price > values[size]:
                values[size], last[size] = values[size - share] + price, share
    counts: dict[int, int] = {}
    size = WHOLE
    while size > 0:
        if last[size]:
            counts[last[size]] = counts.get(last[size], 0) + 1
        size -= last[size] or 1
    return values[WHOLE], tuple(sorted(counts.items()))


def _totals(nodes: Sequence[NodeGroup], of: int) -> list[float]:
    """Returns the cpu (0), memory (1) or GPUs (2) of the nodes of each group together."""
    sizes = ((each.cpu_milli, _mebibytes(each.memory), each.gpus) for each in nodes)
    return [float(group.number * size[of]) for group, size in zip(nodes, sizes, strict=True)]


def _mebibytes(size: int) -> float:
    """Memory in a unit in which its coefficients are of the size of the others."""
    return size / (1 << 20)
