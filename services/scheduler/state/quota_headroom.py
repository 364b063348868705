"""Capacity of quotas: used and usable amounts as far as the scheduler has read, and the difference.

Only the ledger decides. The capacity selects the pods that may fit now, and shows how much is missing for the others.
"""

from collections.abc import Mapping

import msgspec

from shared.domain.amounts import Amounts, add, exceeding_with, raise_clamped
from shared.domain.quota_check_options import QuotaCheckOptions
from shared.domain.quota_lookup import QuotaLookup
from shared.kube.elastic_quota import RESERVED, DeclaredQuota


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod in the ledger.

    Attributes:
        request: the amounts that it counts with.
        since: `quota` seq since which it counts with them.
    """

    quota: str
    request: dict[str, int]
    since: int
    preemptible: bool = True
    charged: bool = False


class QuotaHeadroom:
    """Used and usable amounts by quota.

    Attributes:
        rules: the ledger's recorded check options; None before the first record.
        names: the quotas of the ledger.
        runtimes: quota -> its runtime: resource -> amount that it may use.
    """

    def __init__(self) -> None:
        self.rules: QuotaCheckOptions | None = None
        self.names = QuotaLookup()
        self.runtimes: dict[str, dict[str, int]] = {}
        self._used: dict[str, Amounts] = {}
        self._np_used: dict[str, Amounts] = {}
        self._children: dict[str, list[str]] | None = None

    def has_room(self, entry: Entry, taken: Mapping[str, Amounts], np_taken: Mapping[str, Amounts]) -> bool:
        """Returns True when a pod fits in its quota besides the amounts in `taken`, which are about to be charged."""
        return self.shortage(entry, taken, np_taken) == {}

    def shortage(self, entry: Entry, taken: Mapping[str, Amounts], np_taken: Mapping[str, Amounts]) -> Amounts | None:
        """Returns the amounts that must be released in a pod's quota before it fits there and in the quotas above.

        None where no preemption can help: the pod is not preemptible, and pods like it use up the quota's min.
        """
        rules = self.rules
        if rules is None or entry.quota in RESERVED:
            return {}  # without recorded options, and for reserved quotas, only the ledger can tell
        path = self.path(entry.quota)
        if not entry.preemptible and path:
            np_used = add(self._below(entry.quota, self._np_used), np_taken.get(entry.quota, {}))
            if exceeding_with(np_used, entry.request, path[0].min):
                return None
        short: Amounts = {}
        for depth, quota in enumerate(path if rules.check_parents else path[:1]):
            limit = self.runtimes.get(quota.name, {}) if rules.compare_runtime else quota.max
            used = add(self._below(quota.name, self._used), taken.get(quota.name, {}))
            for name in exceeding_with(used, entry.request, limit):
                if not depth or name in entry.request:
                    missing = used.get(name, 0) + entry.request.get(name, 0) - limit[name]
                    short[name] = max(short.get(name, 0), missing)
        return short

    def take(self, entry: Entry, taken: dict[str, Amounts], np_taken: dict[str, Amounts]) -> None:
        """Counts a pod as about to be charged."""
        for quota in self.path(entry.quota):
            raise_clamped(taken.setdefault(quota.name, {}), entry.request)
            if not entry.preemptible:
                raise_clamped(np_taken.setdefault(quota.name, {}), entry.request)

    def path(self, quota: str) -> list[DeclaredQuota]:
        """Returns the quota and its ancestors without the root."""
        path: list[DeclaredQuota] = []
        while (found := self.names.quotas.get(quota)) is not None and found not in path:
            path.append(found)
            quota = found.parent
        return path

    def _below(self, quota: str, sums: Mapping[str, Amounts]) -> Amounts:
        """Returns the amounts used by a quota's pods and by those of its descendants."""
        if self._children is None:
            self._children = {}
            for name, found in sorted(self.names.quotas.items()):
                self._children.setdefault(found.parent, []).append(name)
        used = sums.get(quota, {})
        for child in self._children.get(quota, ()):
            used = add(used, self._below(child, sums))
        return used

    def _count(self, entry: Entry, sign: int) -> None:
        vector = {name: sign * size for name, size in entry.request.items()}
        raise_clamped(self._used.setdefault(entry.quota, {}), vector)
        if not entry.preemptible:
            raise_clamped(self._np_used.setdefault(entry.quota, {}), vector)
