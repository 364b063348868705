"""Over-use: when a quota uses more than it may for too long, which of its pods give way.

Source: spec/quota.md 6.4; upstream pkg/scheduler/plugins/elasticquota/quota_overuse_revoke.go.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.quota_ledger.switches import EXACT, Switches
from shared.domain.amounts import Amounts, add, exceeding, mask, sub


class Holder(NamedTuple):
    """A pod that uses a quota.

    Attributes:
        started_ns: when it started; the present for one that has not.
        preemptible: only such a pod is ever revoked.
    """

    pod: str
    request: Mapping[str, int]
    priority: int
    started_ns: int
    preemptible: bool


class Overuse(NamedTuple):
    """The clock of one quota's over-use.

    Attributes:
        under_ns: when it was last seen within its runtime, or revoked.
    """

    under_ns: int

    def observed(self, now_ns: int, *, over: bool, delay_ns: int) -> tuple["Overuse", bool]:
        """The clock after a look, and whether it is time to revoke: when over-used for longer than the delay, not as long."""
        if not over:
            return Overuse(now_ns), False
        if now_ns - self.under_ns > delay_ns:
            return Overuse(now_ns), True
        return self, False


def victims(
    used: Mapping[str, int], limit: Mapping[str, int], holders: Sequence[Holder], switches: Switches = EXACT
) -> list[str]:
    """The pods that must go so that `used` is within `limit`.

    The least important are taken until it is (lower priority first, then the later start), then given back from the most
    important on, as far as there is room. When all that may be taken is not enough, all of it goes.

    Returns:
        Pods in the order in which they are to be evicted.
    """
    rest: Amounts = dict(used)
    taken: list[Holder] = []
    for holder in sorted(holders, key=lambda each: (each.priority, -each.started_ns, each.pod)):
        if not exceeding(rest, limit):
            break
        if holder.preemptible:
            rest = _kept(sub(rest, holder.request), holder, switches)
            taken.append(holder)
    if exceeding(rest, limit):
        return [holder.pod for holder in taken]
    revoked = []
    for holder in reversed(taken):
        rest = _kept(add(rest, holder.request), holder, switches)
        if exceeding(rest, limit):
            rest = sub(rest, holder.request)
            revoked.append(holder.pod)
    return revoked


def _kept(rest: Amounts, holder: Holder, switches: Switches) -> Amounts:
    return mask(rest, holder.request) if switches.revoke_masks_keys else rest
