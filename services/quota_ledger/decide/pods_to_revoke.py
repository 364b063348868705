"""The pods that are revoked of an overused quota: single ones, members of gangs beyond their minimum, and whole gangs.

    the least important first   lower priority, then the later start; a whole gang is as important as the most important
                                of its members in the quota
    a whole gang                all running members of its group of gangs, those in other quotas included; only where
                                each of them is preemptible, and after the members beyond the minimum

Source: spec/quota.md 6.4; spec/scheduler-workloads.md 2.1.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from services.quota_ledger.pods.running_gangs import RunningGangs
from services.quota_ledger.state.ledger_state import LedgerState
from shared.domain.amounts import Amounts, add, exceeding, sub, total


class Candidate(NamedTuple):
    """A charged pod of an overused quota.

    Attributes:
        started_s: its start in seconds since the epoch; the present for a pod that has not started.
        preemptible: only such a pod is revoked.
    """

    pod: str
    request: Mapping[str, int]
    priority: int
    started_s: float
    preemptible: bool

    def importance(self) -> tuple[int, float, str]:
        """Returns a key by which the least important pods come first."""
        return self.priority, -self.started_s, self.pod


class Lot(NamedTuple):
    """Pods that are revoked together or not at all.

    Attributes:
        pods: of the quota, the least important first.
        group: ids of their group of gangs; empty for a pod without a gang.
        gang: the gang that ends with them; empty for a single pod.
        others: uids of members in other quotas.
        rank: the importance of the lot.
    """

    pods: tuple[Candidate, ...]
    rank: tuple[int, float, str]
    group: tuple[str, ...] = ()
    gang: str = ""
    others: tuple[str, ...] = ()

    def frees(self) -> Amounts:
        """Returns the amounts that the quota gets back."""
        return total(pod.request for pod in self.pods)

    def uids(self) -> Iterator[str]:
        """Yields the pods in the order of their eviction."""
        yield from (pod.pod for pod in self.pods)
        yield from self.others


def lots_of(state: LedgerState, charged: Iterable[Candidate], leaving: Collection[str] = ()) -> list[Lot]:
    """Returns the pods of a quota as they may be revoked.

    Args:
        leaving: uids of pods whose eviction is requested, which count no more as members of their gangs.
    """
    entries = state.pods.entries
    candidates = sorted(charged, key=Candidate.importance)
    gang_of = {
        each.pod: pod.gang for each in candidates if (pod := entries[each.pod].observed) is not None and pod.gang
    }
    if not gang_of:
        return [Lot((each,), each.importance()) for each in candidates if each.preemptible]
    gangs = RunningGangs(entries, state.pod_groups, leaving)
    singles: list[Lot] = []
    rest: dict[tuple[str, ...], list[Candidate]] = {}
    spare: dict[str, int] = {}
    for each in candidates:
        gang = gang_of.get(each.pod, "")
        if not gang or gangs.settings_of(gang) is None:
            singles += [Lot((each,), each.importance())] if each.preemptible else []
        elif each.preemptible and spare.setdefault(gang, gangs.spare(gang)) > 0:
            spare[gang] -= 1
            singles.append(Lot((each,), each.importance(), gangs.group_of(gang)))
        else:
            rest.setdefault(gangs.group_of(gang), []).append(each)
    wholes = (_whole(state, gangs, group, pods, singles, gang_of) for group, pods in rest.items())
    return [*singles, *(lot for lot in wholes if lot is not None)]


def _whole(
    state: LedgerState,
    gangs: RunningGangs,
    group: tuple[str, ...],
    pods: Sequence[Candidate],
    singles: Sequence[Lot],
    gang_of: Mapping[str, str],
) -> Lot | None:
    """Returns the members of a group that are no lots by themselves; None where one of them is not preemptible."""
    alone = [lot.pods[0] for lot in singles if lot.group == group]
    here = {each.pod for each in (*alone, *pods)}
    others = [uid for uid in gangs.members_of(group) if uid not in here]
    is_preemptible = (
        observed.preemptible for uid in others if (observed := state.pods.entries[uid].observed) is not None
    )
    if not all(each.preemptible for each in pods) or not all(is_preemptible):
        return None
    # Behind the members that are lots by themselves: none of them is left once their gang ends.
    rank = max(each.importance() for each in (*alone, *pods))
    return Lot(tuple(pods), rank, group, gang_of[pods[0].pod], tuple(sorted(others)))


def victims(used: Mapping[str, int], limit: Mapping[str, int], lots: Sequence[Lot]) -> list[Lot]:
    """Chooses the lots whose eviction brings `used` within `limit`.

    Lots are taken until it is, the least important first; then they are spared again from the most important on, as far
    as there is capacity. When all are not enough, all of them are chosen.

    Returns:
        Lots in the order of their eviction.
    """
    rest: Amounts = dict(used)
    chosen: list[Lot] = []
    for lot in sorted(lots, key=lambda each: (each.rank, bool(each.gang))):
        if not exceeding(rest, limit):
            break
        rest = sub(rest, lot.frees())
        chosen.append(lot)
    if exceeding(rest, limit):
        return chosen
    revoked: list[Lot] = []
    ended: set[tuple[str, ...]] = set()
    for lot in reversed(chosen):
        with_lot = add(rest, lot.frees())
        if exceeding(with_lot, limit) or lot.group in ended:
            revoked.append(lot)
            if lot.gang:
                ended.add(lot.group)
        else:
            rest = with_lot
    return revoked
