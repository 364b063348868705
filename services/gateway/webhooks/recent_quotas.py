"""Quotas that this replica has just admitted or allowed to delete: counted as present, or absent, until they are
observed.

Without this, two children created at the same time would each get their parent's whole min. A quota that is not
observed within KEPT_S was refused by another webhook or never stored.

Source: spec/api.md 5.7, last sentence.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from shared.admission.quota.quota_topology import Topology
from shared.kube.elastic_quota import DeclaredQuota, declared
from shared.kube.quantity import BadQuantity

Raw = dict[str, Any]

KEPT_S = 5.0


class AdmittedQuota(NamedTuple):
    """An admitted quota; `quota` is None for an allowed deletion."""

    quota: DeclaredQuota | None
    raw: Raw | None
    until: float


class RecentQuotas:
    """Admitted quotas that are not observed yet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Starts empty.

        Args:
            clock: returns seconds since any fixed time.
        """
        self._clock = clock
        self._noted: dict[str, AdmittedQuota] = {}

    def record(self, name: str, raw: Raw | None) -> None:
        """Records a quota admitted as `raw`, or an allowed deletion if it is None."""
        quota = None
        if raw is not None:
            with contextlib.suppress(BadQuantity):
                quota = _compared(declared(raw))
        self._noted[name] = AdmittedQuota(quota, raw, self._clock() + KEPT_S)

    def overlay(self, observed: Topology, but: str = "") -> Topology:
        """Returns the observed quotas overlaid with the admitted ones, except `but`, which is being evaluated again."""
        now = self._clock()
        for name, noted in list(self._noted.items()):
            there = observed.quotas.get(name)
            if noted.until <= now or (_compared(there) if there else None) == noted.quota:
                del self._noted[name]
        others = {name: noted for name, noted in self._noted.items() if name != but}
        if not others:
            return observed
        result = Topology(observed.quotas.values())
        result.guaranteed = dict(observed.guaranteed)
        for name, noted in others.items():
            if noted.quota is None:
                result.drop(name)
            else:
                result.put(noted.quota, noted.raw)
        return result


def _compared(quota: DeclaredQuota) -> DeclaredQuota:
    """Returns the quota without the uid, which an object gets only when it is stored."""
    return msgspec.structs.replace(quota, uid="")
