"""The quotas of a tree, their parents and children, and the levels whose runtimes must be computed again.

Source: spec/quota.md 2.5, 3.1; upstream pkg/scheduler/plugins/elasticquota/core/group_quota_manager.go.
"""

from collections.abc import Mapping

from services.quota_ledger.runtime.fair_share_inputs import FairShareInputs
from services.quota_ledger.runtime.level_batch import LevelBatch
from services.quota_ledger.runtime.matrix_layout import MatrixLayout
from services.quota_ledger.tree.changed_runtimes_record import RuntimeDelta
from services.quota_ledger.tree.quota_info import QuotaInfo
from shared.domain.amounts import Amounts, sub
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota


class Hierarchy:
    """The quotas of one tree id.

    Attributes:
        quotas: by name, the root included.
        total: capacity of the tree, including the use of the reserved groups.
        capacity: `total` without that use, shared by the first level.
        changed_levels: parents whose children's runtimes must be computed again.
    """

    def __init__(self, *, scales_min: bool = True, guarantees: bool = False) -> None:
        self._scales_min = scales_min
        self._guarantees = guarantees
        self.total: Amounts = {}
        self.capacity: Amounts = {}
        root = DeclaredQuota(name=ROOT, parent="", is_parent=True, lends=False)
        self._fair_share_inputs = FairShareInputs()
        self.quotas: dict[str, QuotaInfo] = {ROOT: QuotaInfo(root, self._fair_share_inputs, lends=False)}
        self._orphans: dict[str, dict[str, None]] = {}  # an unknown parent -> quotas that name it
        self._resource_counts: dict[str, int] = {}
        self.changed_levels: set[str] = set()
        self._matrices = MatrixLayout(self._fair_share_inputs)
        self._without_matrix: dict[str, None] = {}  # parents whose children need columns
        self._computed: tuple[RuntimeDelta, list[LevelBatch]] | None = None
        self._paths: dict[str, tuple[QuotaInfo, ...]] = {}
        self._resources_changed = False  # then runtimes may have to lose a resource

    def path(self, name: str) -> tuple[QuotaInfo, ...]:
        """Returns the quotas from one to the root, both included; fewer when a parent is unknown."""
        found = self._paths.get(name)
        if found is None:
            path, above = [], name
            while (info := self.quotas.get(above)) is not None:
                path.append(info)
                above = info.declared.parent
            found = self._paths[name] = tuple(path)
        return found

    def sharing_children(self, parent: str) -> list[QuotaInfo]:
        """Returns the children that share a parent's runtime: all but the reserved groups."""
        return [self.quotas[name] for name in self.quotas[parent].children if name not in RESERVED]

    def level_resources(self, parent: str) -> list[str]:
        """Returns the resources that a level shares."""
        return sorted(self._resource_counts if parent == ROOT else self.quotas[parent].declared.max)

    def level_capacity(self, parent: str) -> Mapping[str, int]:
        """Returns the capacity that a level shares."""
        return self.capacity if parent == ROOT else self.quotas[parent].runtime

    def _lends(self, quota: DeclaredQuota) -> bool:
        return quota.lends and not self._guarantees

    def _recount_capacity(self) -> None:
        capacity = dict(self.total)
        for name in RESERVED:
            if name in self.quotas:
                capacity = sub(capacity, self.quotas[name].used)
        for resource in self.capacity:
            capacity.setdefault(resource, 0)  # a resource that the tree once had stays: min is scaled in it to zero
        if capacity != self.capacity:
            self.capacity = capacity
            self._mark_changed(ROOT)

    def _count_resources(self, quota: DeclaredQuota, step: int) -> None:
        if quota.name == ROOT or quota.name in RESERVED:
            return
        for resource in quota.max:
            count = self._resource_counts.get(resource, 0) + step
            if count:
                self._resource_counts[resource] = count
            else:
                self._resource_counts.pop(resource, None)
                self._resources_changed = True
            if count <= 1:
                self._mark_changed(ROOT)

    def _mark_changed(self, *names: str) -> None:
        self.changed_levels.update(names)
        self._computed = None
        for name in names:
            self._matrices.drop(name)
            self._without_matrix[name] = None

    def _demand_changed(self, info: QuotaInfo) -> None:
        self.changed_levels.add(info.declared.parent)
        self._computed = None
        if info.matrix is not None:
            info.matrix.set_demand(info)
