"""One quota's numbers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from services.quota_ledger.runtime.demand_matrix import ASKS, MINIMA, WEIGHTS, DemandMatrix
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
        "allocated", "asked", "child_request", "children", "declared", "depth", "guaranteed", "is_new", "kept_floor", "kept_runtime",
        "laid_out", "lends", "line", "name", "np_request", "np_used", "request", "row", "self_np_request", "self_np_used", "self_request", "self_used", "sheet",
        "used", "version",
    )  # fmt: skip

    def __init__(self, declared: DeclaredQuota, sheet: DemandMatrix, *, lends: bool) -> None:
        self.sheet = sheet
        self.line = sheet.take()
        self.declare(declared, lends=lends)
        self.is_new = True
        self.name = declared.name
        self.children: dict[str, None] = {}
        self.depth = 0
        self.asked: Amounts = {}
        self.laid_out: SiblingMatrix | None = None
        self.row = 0
        self.version = 0
        self.kept_floor: Mapping[str, int] = declared.min
        self.kept_runtime: Amounts = {}
        self.self_request: Amounts = {}
        self.self_used: Amounts = {}
        self.self_np_request: Amounts = {}
        self.self_np_used: Amounts = {}
        self.clear_sums()

    def declare(self, declared: DeclaredQuota, *, lends: bool) -> None:
        """It declares this from now on."""
        self.declared, self.lends, self.is_new = declared, lends, False
        self.sheet.put(MINIMA, self.line, declared.min)
        self.sheet.put(WEIGHTS, self.line, declared.weight)

    def ask(self, amounts: Amounts) -> None:
        """The sharing at its parent's level counts this as its request from now on."""
        self.asked = amounts
        self.sheet.put(ASKS, self.line, amounts)

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
        if self.laid_out is not None and self.version != self.laid_out.version:
            self.catch_up()
        return self.kept_runtime

    @runtime.setter
    def runtime(self, runtime: Amounts) -> None:
        self.kept_runtime, self.is_new = runtime, False

    @property
    def scaled_min(self) -> Mapping[str, int]:
        """Min in force at its level."""
        if self.laid_out is not None and self.version != self.laid_out.version:
            self.catch_up()
        return self.kept_floor

    @scaled_min.setter
    def scaled_min(self, floor: Mapping[str, int]) -> None:
        self.kept_floor, self.is_new = floor, False

    def catch_up(self) -> None:
        """Take over the shares that lie with its siblings', if they are newer."""
        shares = self.laid_out
        if shares is None or self.version == shares.version:
            return
        self.version, self.is_new = shares.version, False
        self.kept_runtime, self.kept_floor = shares.shares(self)

    def limited(self) -> Amounts:
        """What it asks its parent for: its request, at most its max."""
        return capped(self.request, self.declared.max)

    def floor_request(self) -> None:
        """Request anew from what is asked for below."""
        self.request = self.child_request if self.lends else largest(self.child_request, self.declared.min)
