"""Requests and use summed from the leaves to the root of one tree. Source: spec/quota.md 2.3."""

from collections.abc import Iterable, Mapping, Sequence

from cli.parity.upstream.quota.quirks import Quirk, Quirks
from cli.parity.upstream.quota.quota_info import QuotaInfo
from shared.domain.amounts import Amounts, add, add_clamped, largest, mask, sub, total
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota


class Aggregation:
    """The quotas of one tree id and what they add up to.

    Attributes:
        accounts: by name, the root included.
        total: capacity of the tree, with the use of the reserved groups.
        capacity: `total` without that use, which the first level shares.
    """

    def __init__(self, quirks: Quirks, *, scales_min: bool, guarantees: bool) -> None:
        self.quirks = quirks
        self.scales_min, self.guarantees = scales_min, guarantees
        self.total: Amounts = {}
        self.capacity: Amounts = {}
        root = DeclaredQuota(name=ROOT, parent="", is_parent=True, lends=False)
        self.quotas: dict[str, QuotaInfo] = {ROOT: QuotaInfo(root, lends=False)}

    def path(self, name: str) -> list[QuotaInfo]:
        """Returns the accounts from a quota to the root; fewer when a parent is unknown."""
        path = []
        while (info := self.quotas.get(name)) is not None:
            path.append(info)
            name = info.declared.parent
        return path

    def set_total(self, total: Amounts) -> None:
        """Replaces the capacity of the tree."""
        self.total = total
        self.recount_capacity()

    def add_request(self, name: str, delta: Amounts, np_delta: Amounts) -> None:
        """Changes the request of a quota's own pods; a difference of nothing notifies nobody."""
        info = self.quotas[name]
        info.self_request = add_clamped(info.self_request, delta)
        info.self_np_request = add_clamped(info.self_np_request, np_delta)
        if any(delta.values()):
            self.raise_request(self.path(name), delta, np_delta)

    def add_used(self, name: str, delta: Amounts, np_delta: Amounts) -> None:
        """Changes the use of a quota's own pods."""
        info = self.quotas[name]
        info.self_used = add_clamped(info.self_used, delta)
        info.self_np_used = add_clamped(info.self_np_used, np_delta)
        self.raise_used(self.path(name), delta, np_delta)

    def raise_request(self, path: Sequence[QuotaInfo], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        """Adds a demand below the first of the path; only the limited change travels up."""
        for info in path:
            info.np_request = add_clamped(info.np_request, np_delta)
            if info.name == ROOT:
                info.request = add_clamped(info.request, delta)
                break
            before = info.limited_request()
            info.child_request = add_clamped(info.child_request, delta)
            info.update_request()
            self.notify(info, info.limited_request())
            delta = sub(info.limited_request(), before)

    def raise_used(self, path: Sequence[QuotaInfo], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        """Adds a use below the first of the path, and to its guarantees."""
        self.raise_sums(path, delta, np_delta)
        if self.guarantees and path:
            if Quirk.WHOLE_DELTA in self.quirks:
                path[0].allocated = add_clamped(path[0].allocated, mask(delta, self.level_resources()))
                self.raise_guaranteed(path, {})
            else:
                self.update_allocated(path)
        if path and path[0].name in RESERVED:
            self.recount_capacity()

    def raise_sums(self, path: Iterable[QuotaInfo], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        """Adds a use to each of the path."""
        for info in path:
            info.used = add_clamped(info.used, delta)
            info.np_used = add_clamped(info.np_used, np_delta)

    def update_allocated(self, path: Sequence[QuotaInfo]) -> None:
        """Computes the allocation of the first of the path from the use of its pods and the guarantees below it."""
        info = path[0]
        below = total(self.quotas[name].guaranteed for name in info.children)
        info.allocated = add(mask(info.self_used, self.level_resources()), below)
        self.raise_guaranteed(path, {})

    def update_allocations(self) -> None:
        """Computes all allocations again after a change of the quotas, which may have other resources."""
        if self.guarantees and Quirk.WHOLE_DELTA not in self.quirks:
            for info in self.quotas.values():
                self.update_allocated(self.path(info.name))

    def raise_guaranteed(self, path: Iterable[QuotaInfo], delta: Mapping[str, int]) -> None:
        """Adds an allocation below the first of the path; each is guaranteed that, and at least its min."""
        if not self.guarantees:
            return
        for info in path:
            info.allocated = add_clamped(info.allocated, delta)
            if info.name == ROOT:
                break
            before = info.guaranteed
            info.guaranteed = largest(info.allocated, info.declared.min)
            delta = sub(info.guaranteed, before)

    def notify(self, info: QuotaInfo, demand: Amounts | None) -> None:
        """Sets the demand by which the parent's level shares, in the resources that the level has by now."""
        info.demand = demand
        info.shared = set() if demand is None else set(self.shared_by(info.declared.parent))

    def level_resources(self) -> set[str]:
        """Returns the resources of the first level."""
        ordinary = (each.declared for each in self.quotas.values() if each.name not in (ROOT, *RESERVED))
        return {name for quota in ordinary for name in quota.max}

    def shared_by(self, parent: str) -> set[str]:
        """Returns the resources that the children of a quota share."""
        if parent == ROOT:
            return self.level_resources()
        return set(self.quotas[parent].declared.max) if parent in self.quotas else set()

    def recount_capacity(self) -> None:
        """Takes the use of the reserved groups from the total. A resource once there stays in the capacity."""
        capacity = dict(self.total)
        for name in RESERVED:
            if name in self.quotas:
                capacity = sub(capacity, self.quotas[name].used)
        self.capacity = dict.fromkeys(self.capacity, 0) | capacity
