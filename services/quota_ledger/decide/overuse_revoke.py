"""Over-use: when a quota uses more than it may for too long, which of its pods give way.

Source: spec/quota.md 6.4; upstream pkg/scheduler/plugins/elasticquota/quota_overuse_revoke.go.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shared.domain.amounts import Amounts, add, exceeding, sub


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


def is_overdue(since_ns: int, now_ns: int, delay_ns: int) -> bool:
    """Returns whether a quota has been over-used for longer than is tolerated; as long is not longer."""
    return now_ns - since_ns > delay_ns


def victims(used: Mapping[str, int], limit: Mapping[str, int], holders: Sequence[Holder]) -> list[str]:
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
            rest = sub(rest, holder.request)
            taken.append(holder)
    if exceeding(rest, limit):
        return [holder.pod for holder in taken]
    revoked = []
    for holder in reversed(taken):
        rest = add(rest, holder.request)
        if exceeding(rest, limit):
            rest = sub(rest, holder.request)
            revoked.append(holder.pod)
    return revoked
