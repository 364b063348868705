"""One quota with its sums and its runtime; upstream's QuotaInfo."""

from collections.abc import Mapping
from typing import Any, Protocol

from services.quota_ledger.runtime.fair_share_inputs import DEMANDS, MINIMA, WEIGHTS, FairShareInputs
from shared.domain.amounts import Amounts, capped, largest, mask
from shared.kube.elastic_quota import DeclaredQuota


class Level(Protocol):
    """The matrix of a level, `runtime/sibling_matrix.py`, with the runtimes of siblings.

    Attributes:
        version: increases whenever a runtime or a scaled min changes.
        columns: resource -> column of `pool`.
    """

    version: int
    columns: dict[str, int]
    pool: Any

    def set_demand(self, info: "QuotaInfo") -> None:
        """Writes the demand of one child."""

    def read(self, info: "QuotaInfo") -> tuple[dict[str, int], dict[str, int]]:
        """Returns runtime and scaled min of one child."""
        ...

    def write(self, info: "QuotaInfo", runtime: Mapping[str, int], scaled_min: Mapping[str, int]) -> None:
        """Writes runtime and scaled min of one child."""


class QuotaInfo:
    """A quota's declaration, the requests and use of its pods, and its runtime.

    Attributes:
        declared: of its object.
        lends: as declared; never with guaranteed usage.
        self_request, self_used, self_np_request, self_np_used: of its own pods; np: of those that must not be
            preempted.
        child_request: sum of its pods' requests and the limited requests of its children.
        request: `child_request`; at least min when it does not lend.
        used, np_request, np_used: of its whole subtree.
        allocated, guaranteed: with guaranteed usage, the use below it, and that amount at least min; empty without.
        demand: its request in the shares of its parent's level.
        children: names of the quotas under it.
        demand_row: its row of `fair_share_inputs`, which repeats min, weight and demand.
        matrix, row: the matrix of its siblings, and its row there.
        is_new: it never had a runtime, and its scaled min is the declared one.
        version: of the matrix when `cached_runtime` and `cached_scaled_min` were copied from there.
    """

    __slots__ = (
        "allocated",
        "cached_runtime",
        "cached_scaled_min",
        "child_request",
        "children",
        "declared",
        "demand",
        "demand_row",
        "depth",
        "fair_share_inputs",
        "guaranteed",
        "is_new",
        "lends",
        "matrix",
        "name",
        "np_request",
        "np_used",
        "request",
        "row",
        "self_np_request",
        "self_np_used",
        "self_request",
        "self_used",
        "used",
        "version",
    )  # fmt: skip

    def __init__(self, declared: DeclaredQuota, fair_share_inputs: FairShareInputs, *, lends: bool) -> None:
        self.fair_share_inputs = fair_share_inputs
        self.demand_row = fair_share_inputs.take()
        self.set_declared(declared, lends=lends)
        self.is_new = True
        self.name = declared.name
        self.children: dict[str, None] = {}
        self.depth = 0
        self.demand: Amounts = {}
        self.matrix: Level | None = None
        self.row = 0
        self.version = 0
        self.cached_scaled_min: Mapping[str, int] = declared.min
        self.cached_runtime: Amounts = {}
        self.self_request: Amounts = {}
        self.self_used: Amounts = {}
        self.self_np_request: Amounts = {}
        self.self_np_used: Amounts = {}
        self.clear_sums()

    def set_declared(self, declared: DeclaredQuota, *, lends: bool) -> None:
        """Replaces the declaration."""
        self.declared, self.lends, self.is_new = declared, lends, False
        self.fair_share_inputs.put(MINIMA, self.demand_row, declared.min)
        self.fair_share_inputs.put(WEIGHTS, self.demand_row, declared.weight)

    def set_demand(self, amounts: Amounts) -> None:
        """Replaces the demand at its parent's level."""
        self.demand = amounts
        self.fair_share_inputs.put(DEMANDS, self.demand_row, amounts)

    def clear_sums(self) -> None:
        """Resets the sums over the subtree."""
        self.child_request: Amounts = {}
        self.request: Amounts = {}
        self.used: Amounts = {}
        self.np_request: Amounts = {}
        self.np_used: Amounts = {}
        self.allocated: Amounts = {}
        self.guaranteed: Amounts = {}

    @property
    def runtime(self) -> Amounts:
        """The amounts that it may use now."""
        if self.matrix is not None and self.version != self.matrix.version:
            self.refresh()
        return self.cached_runtime

    @runtime.setter
    def runtime(self, runtime: Amounts) -> None:
        self.cached_runtime, self.is_new = runtime, False

    @property
    def counted_runtime(self) -> Amounts:
        """Its runtime in the resources that limit it: those of max. Of others it has a share of 0, which is no limit."""
        return mask(self.runtime, self.declared.max)

    @property
    def scaled_min(self) -> Mapping[str, int]:
        """Its min, scaled down where the minima of its level exceed the capacity."""
        if self.matrix is not None and self.version != self.matrix.version:
            self.refresh()
        return self.cached_scaled_min

    @scaled_min.setter
    def scaled_min(self, scaled_min: Mapping[str, int]) -> None:
        self.cached_scaled_min, self.is_new = scaled_min, False

    def refresh(self) -> None:
        """Copies runtime and scaled min from the matrix if they are newer."""
        matrix = self.matrix
        if matrix is None or self.version == matrix.version:
            return
        self.version, self.is_new = matrix.version, False
        self.cached_runtime, self.cached_scaled_min = matrix.read(self)

    def limited_request(self) -> Amounts:
        """Returns its request, at most its max."""
        return capped(self.request, self.declared.max)

    def update_request(self) -> None:
        """Computes the request from the requests below."""
        self.request = self.child_request if self.lends else largest(self.child_request, self.declared.min)
