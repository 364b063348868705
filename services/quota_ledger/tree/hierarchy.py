"""Who is in a tree of quotas, how the quotas hang together, and at which levels something moved.

Source: spec/quota.md 2.5, 3.1; upstream pkg/scheduler/plugins/elasticquota/core/group_quota_manager.go.
"""

from collections.abc import Mapping

from services.quota_ledger.runtime.demand_matrix import DemandMatrix
from services.quota_ledger.runtime.level_batch import LevelBatch
from services.quota_ledger.runtime.matrix_layout import MatrixLayout
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.runtime_delta import RuntimeDelta
from shared.domain.amounts import Amounts, sub
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota


class Hierarchy:
    """The quotas of one tree id.

    Attributes:
        accounts: by name, the root included.
        total: what the tree may share, with what the reserved groups use.
        capacity: `total` without that; what the first level shares.
        levels: names of parents at whose level something moved since `settle`.
    """

    def __init__(self, *, scales_min: bool = True, guarantees: bool = False) -> None:
        self._scales_min = scales_min
        self._guarantees = guarantees
        self.total: Amounts = {}
        self.capacity: Amounts = {}
        root = DeclaredQuota(name=ROOT, parent="", is_parent=True, lends=False)
        self._sheet = DemandMatrix()
        self.accounts: dict[str, QuotaInfo] = {ROOT: QuotaInfo(root, self._sheet, lends=False)}
        self._orphans: dict[str, dict[str, None]] = {}  # a parent that is not there -> those that name it
        self._dimensions: dict[str, int] = {}
        self.levels: set[str] = set()
        self._layout = MatrixLayout(self._sheet)
        self._bare: dict[str, None] = {}  # parents whose children are to be laid out
        self._proposal: tuple[RuntimeDelta, list[LevelBatch]] | None = None
        self._paths: dict[str, tuple[QuotaInfo, ...]] = {}
        self._reshaped = False  # resources came or went, so shares may have to lose some

    def path(self, name: str) -> tuple[QuotaInfo, ...]:
        """From a quota to the root, both included; shorter when a parent is unknown."""
        found = self._paths.get(name)
        if found is None:
            path, above = [], name
            while (account := self.accounts.get(above)) is not None:
                path.append(account)
                above = account.declared.parent
            found = self._paths[name] = tuple(path)
        return found

    def siblings(self, parent: str) -> list[QuotaInfo]:
        """The quotas that share what a parent may use; the reserved groups are none of them."""
        return [self.accounts[name] for name in self.accounts[parent].children if name not in RESERVED]

    def dimensions(self, parent: str) -> list[str]:
        """The resources that are shared at a level."""
        return sorted(self._dimensions if parent == ROOT else self.accounts[parent].declared.max)

    def level_capacity(self, parent: str) -> Mapping[str, int]:
        """What a level shares."""
        return self.capacity if parent == ROOT else self.accounts[parent].runtime

    def _lends(self, quota: DeclaredQuota) -> bool:
        return quota.lends and not self._guarantees

    def _recount_capacity(self) -> None:
        capacity = dict(self.total)
        for name in RESERVED:
            if name in self.accounts:
                capacity = sub(capacity, self.accounts[name].used)
        for resource in self.capacity:
            capacity.setdefault(resource, 0)  # a resource that the tree once had stays one that min is scaled in
        if capacity != self.capacity:
            self.capacity = capacity
            self._mark(ROOT)

    def _count_dimensions(self, quota: DeclaredQuota, step: int) -> None:
        if quota.name == ROOT or quota.name in RESERVED:
            return
        for resource in quota.max:
            count = self._dimensions.get(resource, 0) + step
            if count:
                self._dimensions[resource] = count
            else:
                self._dimensions.pop(resource, None)
                self._reshaped = True
            if count <= 1:
                self._mark(ROOT)

    def _mark(self, *names: str) -> None:
        self.levels.update(names)
        self._proposal = None
        for name in names:
            self._layout.drop(name)
            self._bare[name] = None

    def _asked(self, account: QuotaInfo) -> None:
        self.levels.add(account.declared.parent)
        self._proposal = None
        if account.laid_out is not None:
            account.laid_out.ask(account)
