"""One tree of quotas as upstream keeps it: changed quota by quota, shared from the root to the leaves.

Source: spec/quota.md 2.5, 3.1, 3.4.
"""

from collections.abc import Iterator

from cli.parity.upstream.quota.aggregation import Aggregation
from cli.parity.upstream.quota.fair_share import Child, scaled_minima, share
from cli.parity.upstream.quota.quirks import Quirk
from cli.parity.upstream.quota.quota_info import QuotaInfo
from shared.domain.amounts import Amounts, add_clamped, largest, mask, negated, sub
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota


class QuotaTree(Aggregation):
    """The quotas of one tree id."""

    def add_quota(self, quota: DeclaredQuota) -> None:
        """Adds a quota. Its children may be there already."""
        info = QuotaInfo(quota, lends=self._lends(quota))
        self.quotas[quota.name] = info
        info.children = {name: None for name, each in self.quotas.items() if each.declared.parent == quota.name}
        self._attach(info)
        if info.children and Quirk.STALE_DEMAND not in self.quirks:
            self.rebuild()
        else:
            self._enter(info)
        self.update_allocations()

    def update_quota(self, quota: DeclaredQuota) -> None:
        """Changes a quota's declaration."""
        info = self.quotas[quota.name]
        before, lends = info.declared, self._lends(quota)
        if Quirk.STALE_DEMAND not in self.quirks:
            info.scaled_min = mask(info.scaled_min, quota.min)
        if before.parent != quota.parent:
            self._detach(info)
            info.declared, info.lends = quota, lends
            if self.guarantees and Quirk.WHOLE_DELTA in self.quirks:
                info.allocated = dict(info.used)
                info.guaranteed = largest(info.allocated, quota.min)
            self._attach(info)
            self._reenter(info)
        elif (info.lends, before.is_parent) != (lends, quota.is_parent):
            info.declared, info.lends = quota, lends
            self.rebuild()
        else:
            self._amend_amounts(info, quota)
        self.update_allocations()

    def delete_quota(self, name: str) -> None:
        """Removes a quota and its numbers from those of its parent."""
        info = self.quotas.pop(name)
        self._detach(info)
        self.update_allocations()

    def rebuild(self) -> None:
        """Recomputes all sums from the demand and use of each quota's own pods."""
        allocated = self.quotas[ROOT].allocated
        for info in self.quotas.values():
            info.clear_sums()
            if Quirk.STALE_DEMAND in self.quirks:
                info.runtime, info.scaled_min = {}, dict(info.declared.min)
        if Quirk.WHOLE_DELTA in self.quirks:
            self.quotas[ROOT].allocated = allocated
        for info in self.quotas.values():
            self._enter(info)
        for info in self.quotas.values():
            path = self.path(info.name)
            self.raise_request(path, info.self_request, info.self_np_request)
            self.raise_used(path, info.self_used, info.self_np_used)
            if info.name in RESERVED and Quirk.GROUPS_COMPETE in self.quirks:
                self._leave_out(info)

    def settle(self) -> None:
        """Computes the runtimes of every level, parents before children."""
        level = [info.name for info in self.quotas.values() if info.declared.parent not in self.quotas]
        while level:
            below: list[str] = []
            for parent in level:
                self._share_level(parent)
                below += self.quotas[parent].children
            level = below

    def _share_level(self, parent: str) -> None:
        capacity = self.capacity if parent == ROOT else self.quotas[parent].runtime
        members = list(self._members(parent))
        minima = [{} if info.name in RESERVED else info.declared.min for info in members]
        floors = scaled_minima(capacity, minima, self.quirks) if self.scales_min else [dict(each) for each in minima]
        is_stale = Quirk.STALE_DEMAND in self.quirks
        known: list[tuple[QuotaInfo, Amounts]] = []
        for info, floor in zip(members, floors, strict=True):
            if info.demand is None and floor != info.scaled_min:
                self.notify(info, info.limited_request())  # another min in force is a notification too
            if info.demand is not None:
                known.append((info, floor))
        runtimes: dict[str, Amounts] = {info.name: {} for info, _ in known}
        for resource in sorted(self.shared_by(parent)):
            children = [_child(info, floor, resource) for info, floor in known]
            for name, given in share(capacity.get(resource, 0), children, self.quirks).items():
                runtimes[name][resource] = given
        for info, floor in known:
            if info.name not in RESERVED:
                info.scaled_min = floor if is_stale else mask(floor, info.declared.min)
                info.runtime = mask(runtimes[info.name], info.shared) if is_stale else runtimes[info.name]

    def _members(self, parent: str) -> Iterator[QuotaInfo]:
        """Yields the quotas that share a level; by a quirk a reserved group, too, once its demand has changed."""
        for name in self.quotas[parent].children:
            info = self.quotas[name]
            if name not in RESERVED or (Quirk.GROUPS_COMPETE in self.quirks and info.demand):
                yield info

    def _lends(self, quota: DeclaredQuota) -> bool:
        return quota.lends and not self.guarantees

    def _amend_amounts(self, info: QuotaInfo, quota: DeclaredQuota) -> None:
        before, known = info.declared, info.demand
        limited_request = info.limited_request()
        info.declared = quota
        if before.max != quota.max:
            known = info.limited_request()
        info.update_request()
        self.notify(info, known if Quirk.STALE_DEMAND in self.quirks else info.limited_request())
        self.raise_guaranteed([info, *self.path(quota.parent)], {})
        self.raise_request(self.path(quota.parent), sub(info.limited_request(), limited_request), {})

    def _attach(self, info: QuotaInfo) -> None:
        if (parent := self.quotas.get(info.declared.parent)) is not None:
            parent.children[info.name] = None

    def _detach(self, info: QuotaInfo) -> None:
        above = self.path(info.declared.parent)
        if above:
            above[0].children.pop(info.name, None)
        whole = Quirk.WHOLE_DELTA in self.quirks
        self.raise_request(above, negated(info.request if whole else info.limited_request()), negated(info.np_request))
        self.raise_sums(above, negated(info.used), negated(info.np_used))
        self.raise_guaranteed(above, negated(info.used if whole else info.guaranteed))

    def _enter(self, info: QuotaInfo) -> None:
        """Counts a quota without pods: the demand and the guarantee of its min alone."""
        if info.name == ROOT:
            return
        before = info.limited_request()
        info.update_request()
        after = info.limited_request()
        self._notify_of_min(info)
        above = self.path(info.declared.parent)
        self.raise_guaranteed([info, *above], {})
        self.raise_request(above, sub(after, before), {})

    def _reenter(self, info: QuotaInfo) -> None:
        """Counts a quota with all that is below it under another parent."""
        above = self.path(info.declared.parent)
        info.update_request()
        if any(info.child_request.values()):
            self.notify(info, info.limited_request())
        else:
            self._notify_of_min(info)
        self.raise_request(above, info.limited_request(), info.np_request)
        self.raise_sums(above, info.used, info.np_used)
        self.raise_guaranteed(above, info.guaranteed)

    def _notify_of_min(self, info: QuotaInfo) -> None:
        """Notifies the level of a quota that is new there.

        By a quirk not of its demand, and not at all before its parent is there.
        """
        if Quirk.STALE_DEMAND not in self.quirks:
            self.notify(info, info.limited_request())
        else:
            self.notify(info, {} if info.declared.parent in self.quotas else None)

    def _leave_out(self, info: QuotaInfo) -> None:
        """Keeps a reserved group out of the first level after a rebuild, until its demand changes."""
        root = self.quotas[ROOT]
        root.request = add_clamped(root.request, sub(info.request, info.limited_request()))
        root.allocated = add_clamped(root.allocated, negated(info.guaranteed))
        info.demand = {}


def _child(info: QuotaInfo, floor: Amounts, resource: str) -> Child:
    return Child(
        info.name,
        max(floor.get(resource, 0), info.guaranteed.get(resource, 0)),
        (info.demand or {}).get(resource, 0),
        info.declared.weight.get(resource, 0),
        info.lends,
    )
