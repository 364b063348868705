"""One quota's numbers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from services.quota_ledger.runtime.demand_matrix import DEMANDS, MINIMA, WEIGHTS, DemandMatrix
from shared.domain.amounts import Amounts, capped, largest
from shared.kube.elastic_quota import DeclaredQuota

if TYPE_CHECKING:
    from services.quota_ledger.runtime.sibling_matrix import SiblingMatrix


class QuotaInfo:
    """What a quota declares, what its pods ask for and use, and what it may use at the moment.

    Attributes:
        declared: of its object.
        lends: as declared; never with guaranteed usage.
        self_request, self_used, self_np_request, self_np_used: of its own pods; np: those that must not be preempted.
        child_request: what its pods and the limited requests of its children add up to.
        request: `child_request`, at least min when it does not lend.
        used, np_request, np_used: of its whole subtree.
        allocated, guaranteed: with guaranteed usage, what is used below and what it is floored to; empty without.
        asked: what the sharing at its parent's level counts as its request.
        children: names of the quotas under it.
        line: of the tree's sheet, where what it declares and asks for stands again.
        laid_out, row: where its shares lie together with its siblings'.
        is_new: it never had a runtime, and its scaled min is what it declares.
        version: of those shares, up to which `kept_runtime` and `kept_floor` are its runtime and its scaled min.
    """

    __slots__ = (
        "allocated", "cached_runtime", "cached_scaled_min", "child_request", "children", "declared", "demand", "demand_matrix", "demand_row",
        "depth", "guaranteed", "is_new", "lends", "matrix", "name", "np_request", "np_used", "request", "row", "self_np_request",
        "self_np_used", "self_request", "self_used", "used", "version",
    )  # fmt: skip

    def __init__(self, declared: DeclaredQuota, demand_matrix: DemandMatrix, *, lends: bool) -> None:
        self.demand_matrix = demand_matrix
        self.demand_row = demand_matrix.take()
        self.set_declared(declared, lends=lends)
        self.is_new = True
        self.name = declared.name
        self.children: dict[str, None] = {}
        self.depth = 0
        self.demand: Amounts = {}
        self.matrix: SiblingMatrix | None = None
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
        """It declares this from now on."""
        self.declared, self.lends, self.is_new = declared, lends, False
        self.demand_matrix.put(MINIMA, self.demand_row, declared.min)
        self.demand_matrix.put(WEIGHTS, self.demand_row, declared.weight)

    def set_demand(self, amounts: Amounts) -> None:
        """The sharing at its parent's level counts this as its request from now on."""
        self.demand = amounts
        self.demand_matrix.put(DEMANDS, self.demand_row, amounts)

    def clear_sums(self) -> None:
        """Forget what is summed over the subtree."""
        self.child_request: Amounts = {}
        self.request: Amounts = {}
        self.used: Amounts = {}
        self.np_request: Amounts = {}
        self.np_used: Amounts = {}
        self.allocated: Amounts = {}
        self.guaranteed: Amounts = {}

    @property
    def runtime(self) -> Amounts:
        """What it may use at the moment."""
        if self.matrix is not None and self.version != self.matrix.version:
            self.refresh()
        return self.cached_runtime

    @runtime.setter
    def runtime(self, runtime: Amounts) -> None:
        self.cached_runtime, self.is_new = runtime, False

    @property
    def scaled_min(self) -> Mapping[str, int]:
        """Min in force at its level."""
        if self.matrix is not None and self.version != self.matrix.version:
            self.refresh()
        return self.cached_scaled_min

    @scaled_min.setter
    def scaled_min(self, scaled_min: Mapping[str, int]) -> None:
        self.cached_scaled_min, self.is_new = scaled_min, False

    def refresh(self) -> None:
        """Take over the shares that lie with its siblings', if they are newer."""
        shares = self.matrix
        if shares is None or self.version == shares.version:
            return
        self.version, self.is_new = shares.version, False
        self.cached_runtime, self.cached_scaled_min = shares.shares(self)

    def limited_request(self) -> Amounts:
        """What it asks its parent for: its request, at most its max."""
        return capped(self.request, self.declared.max)

    def update_request(self) -> None:
        """Request anew from what is asked for below."""
        self.request = self.child_request if self.lends else largest(self.child_request, self.declared.min)
