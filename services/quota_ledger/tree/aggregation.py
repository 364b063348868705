"""Requests and use of quotas, summed from the leaves to the root.

A pod changes the sums along one path by its difference, and marks the levels on it whose demand changed.

Source: spec/quota.md 2.3; upstream pkg/scheduler/plugins/elasticquota/core/group_quota_manager.go.
"""

from collections.abc import Mapping, Sequence

from services.quota_ledger.tree.quota_hierarchy import Hierarchy
from services.quota_ledger.tree.quota_info import QuotaInfo
from shared.domain.amounts import Amounts, add, add_clamped, largest, mask, raise_clamped, sub, total
from shared.kube.elastic_quota import RESERVED, ROOT


class Aggregation(Hierarchy):
    """The sums of a tree."""

    def add_request(self, name: str, delta: Amounts, np_delta: Amounts) -> None:
        """Adds to the requests of a quota's pods; a negative delta subtracts."""
        if (info := self.quotas.get(name)) is None:
            return
        info.self_request = add_clamped(info.self_request, delta)
        info.self_np_request = add_clamped(info.self_np_request, np_delta)
        self._raise_request(self.path(name), delta, np_delta)

    def add_used(self, name: str, delta: Amounts, np_delta: Amounts) -> None:
        """Adds to the use of a quota's pods; a negative delta subtracts."""
        if (info := self.quotas.get(name)) is None:
            return
        raise_clamped(info.self_used, delta)
        if np_delta:
            raise_clamped(info.self_np_used, np_delta)
        self._raise_used(self.path(name), delta, np_delta)

    def _raise_request(self, path: Sequence[QuotaInfo], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        for info in path:
            info.np_request = add_clamped(info.np_request, np_delta)
            if info.name == ROOT:
                info.request = add_clamped(info.request, delta)
                break
            before = info.limited_request()
            info.child_request = add_clamped(info.child_request, delta)
            info.update_request()
            after = info.limited_request()
            if info.demand != after:
                info.set_demand(after)
                self._demand_changed(info)
            delta = sub(after, before)

    def _raise_used(self, path: Sequence[QuotaInfo], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        self._raise_sums(path, delta, np_delta)
        if self._guarantees and path:
            self._update_allocated(path)
        if path and path[0].name in RESERVED:
            self._recount_capacity()

    def _raise_sums(self, path: Sequence[QuotaInfo], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        changes = tuple(delta.items())
        for info in path:
            used = info.used
            for name, size in changes:
                after = used.get(name, 0) + size
                used[name] = after if after > 0 else 0  # noqa: FURB136 (half the time of max, for every account above a pod)
            if np_delta:
                raise_clamped(info.np_used, np_delta)

    def _update_allocated(self, path: Sequence[QuotaInfo]) -> None:
        """Computes the allocation of the first of the path again: the use of its pods and the guarantees below it.

        A use counts in the resources that some quota's max has now. Adding differences instead would make the sum
        depend on the order in which pods and quotas arrived, and a projection restored from a snapshot would differ.
        """
        info = path[0]
        below = total(self.quotas[name].guaranteed for name in info.children)
        info.allocated = add(mask(info.self_used, self._resource_counts), below)
        self._raise_guaranteed(path, {})

    def _raise_guaranteed(self, path: Sequence[QuotaInfo], delta: Mapping[str, int]) -> None:
        """Adds to the allocation below the first of the path; each quota is guaranteed that, and at least its min."""
        if not self._guarantees:
            return
        for info in path:
            info.allocated = add_clamped(info.allocated, delta)
            if info.name == ROOT:
                break
            before = info.guaranteed
            info.guaranteed = largest(info.allocated, info.declared.min)
            if info.guaranteed != before:
                self._mark_changed(info.declared.parent)
            delta = sub(info.guaranteed, before)
