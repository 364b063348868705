"""What is used of each quota and what it may use, as far as the scheduler knows, and so what room there is in it.

The ledger alone decides; this tells which pods may have room now, and how much is missing.
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
        request: what it counts with there.
        since: `quota` seq since which it counts so.
    """

    quota: str
    request: dict[str, int]
    since: int
    preemptible: bool = True
    charged: bool = False


class QuotaCapacity:
    """Used and usable, by quota.

    Attributes:
        rules: how the ledger compares; None while it has not said so.
        names: quotas as the ledger has them.
        runtimes: quota -> what it may use.
    """

    def __init__(self) -> None:
        self.rules: QuotaCheckOptions | None = None
        self.names = QuotaLookup()
        self.runtimes: dict[str, dict[str, int]] = {}
        self._used: dict[str, Amounts] = {}
        self._np_used: dict[str, Amounts] = {}
        self._children: dict[str, list[str]] | None = None

    def has_room(self, entry: Entry, taken: Mapping[str, Amounts], np_taken: Mapping[str, Amounts]) -> bool:
        """Whether a pod's quota has room for it, as far as is known here, beside what is about to be `taken`."""
        return self.shortage(entry, taken, np_taken) == {}

    def shortage(self, entry: Entry, taken: Mapping[str, Amounts], np_taken: Mapping[str, Amounts]) -> Amounts | None:
        """How much has to come free in a pod's quota before it has room there and above.

        None where no preemptible pod can free it: the pod is none itself, and its quota's min is used up by such pods.
        """
        rules = self.rules
        if rules is None or entry.quota in RESERVED:
            return {}  # the ledger knows
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
        """Count a pod as about to be charged."""
        for quota in self.path(entry.quota):
            raise_clamped(taken.setdefault(quota.name, {}), entry.request)
            if not entry.preemptible:
                raise_clamped(np_taken.setdefault(quota.name, {}), entry.request)

    def path(self, quota: str) -> list[DeclaredQuota]:
        """The quota and what is above it, the root excluded."""
        path: list[DeclaredQuota] = []
        while (found := self.names.quotas.get(quota)) is not None and found not in path:
            path.append(found)
            quota = found.parent
        return path

    def _below(self, quota: str, sums: Mapping[str, Amounts]) -> Amounts:
        """What is used by a quota's pods and by those of the quotas under it."""
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
