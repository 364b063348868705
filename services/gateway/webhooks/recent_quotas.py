"""Quotas that this replica has just let in, or let go: judged as there, or gone, until they are observed.

Without it, two children created in one breath would each have their parent's whole min. What was let in and is not observed within KEPT_S was
refused by someone else, or was never stored.

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


class Noted(NamedTuple):
    """A quota as it was let in; `quota` is None where it was let go."""

    quota: DeclaredQuota | None
    raw: Raw | None
    until: float


class Recent:
    """What was answered and is not observed yet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Remember nothing.

        Args:
            clock: seconds, of any beginning.
        """
        self._clock = clock
        self._noted: dict[str, Noted] = {}

    def note(self, name: str, raw: Raw | None) -> None:
        """A quota was let in as `raw`, or let go."""
        quota = None
        if raw is not None:
            with contextlib.suppress(BadQuantity):
                quota = _compared(declared(raw))
        self._noted[name] = Noted(quota, raw, self._clock() + KEPT_S)

    def over(self, observed: Topology, but: str = "") -> Topology:
        """The quotas observed, and over them what was answered; that of `but`, which is being judged anew, left out."""
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
    """Without the uid, which an object has only once it is stored."""
    return msgspec.structs.replace(quota, uid="")
