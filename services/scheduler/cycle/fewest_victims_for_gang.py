"""The fewest victims for several equal pods: of each node the pods that make capacity there, and the nodes with the
least loss.

    options of a node   for each number of further pods: all pods of lower priority leave, then each is put back, the
                        most important first, while the further pods still fit
    loss of an option   the sum, over the jobs of its victims, of the highest rank of a victim's priority; then the
                        number of victims
    nodes               those whose options give the missing pods with the least loss; of equal ones the first

A rank is the place of a priority among those of all potential victims. Amounts alone: filters are up to the caller.
Source: spec/scheduler-workloads.md 4.4; upstream pkg/scheduler/plugins/coscheduling/core/preemption.go.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from services.scheduler.kernels.array_types_and_row_selection import Int64

_RANK = 1 << 32  # more than all victims of a cluster
_NEVER = np.int64(1) << 61


class PotentialVictim(NamedTuple):
    """A pod of lower priority on a node.

    Attributes:
        amounts: int64[resources], what it releases; the last one counts pods.
        rank: of its priority.
        job: victims of one job count once.
    """

    uid: str
    amounts: Int64
    rank: int
    job: str


class Option(NamedTuple):
    """Victims of a node.

    Attributes:
        pods: how many more pods fit without them.
    """

    pods: int
    victims: tuple[str, ...]
    loss: int


class NodeOptions(NamedTuple):
    """The options of a node, by the number of pods."""

    row: int
    options: tuple[Option, ...]


def slots_of(free: Int64, sizes: Int64) -> int:
    """Returns how many pods of some sizes fit into free amounts."""
    return max(int((free // sizes).min()), 0)


def options_of(
    free: Int64, sizes: Int64, potential: Sequence[PotentialVictim], now: int, most: int
) -> tuple[Option, ...]:
    """Returns the options of a node.

    Args:
        free: int64[resources] at present; sizes: of one pod, above 0.
        potential: the most important first.
        now: pods that fit without victims, which are counted elsewhere.
        most: further pods that are of use.
    """
    emptied = free + sum((each.amounts for each in potential), np.zeros_like(free))
    full = min(slots_of(emptied, sizes), now + most)
    found = []
    for pods in range(now + 1, full + 1):
        left, victims = emptied - pods * sizes, []
        for each in potential:
            if (left >= each.amounts).all():
                left = left - each.amounts
            else:
                victims.append(each)
        found.append(Option(pods - now, tuple(each.uid for each in victims), _loss(victims)))
    return tuple(found)


def _loss(victims: Sequence[PotentialVictim]) -> int:
    ranks: dict[str, int] = {}
    for each in victims:
        ranks[each.job] = max(ranks.get(each.job, 0), each.rank)
    return sum(ranks.values()) * _RANK + len(victims)


def least_loss(nodes: Sequence[NodeOptions], missing: int) -> tuple[int, Mapping[int, Option]] | None:
    """Returns the least loss that makes capacity for the missing pods, and row -> option; None where all nodes have too
    few.

    The loss for 0..missing pods is kept while the nodes are added one by one.
    """
    least = np.full(missing + 1, _NEVER)
    least[0] = 0
    taken: list[Int64] = []
    for node in nodes:
        after, choice = least.copy(), np.full(missing + 1, -1, np.int64)
        for number, option in enumerate(node.options):
            with_option = np.full(missing + 1, least[0])
            with_option[option.pods :] = least[: max(missing + 1 - option.pods, 0)]
            with_option += option.loss
            better = with_option < after
            better[0] = False
            after[better], choice[better] = with_option[better], number
        least = after
        taken.append(choice)
    if least[missing] >= _NEVER:
        return None
    found: dict[int, Option] = {}
    left = missing
    for node, choice in zip(reversed(nodes), reversed(taken), strict=True):
        if left and choice[left] >= 0:
            option = found[node.row] = node.options[int(choice[left])]
            left = max(left - option.pods, 0)
    return int(least[missing]), found
