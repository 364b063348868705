"""The order in which the pods of one cycle are tried."""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

from services.scheduler.queue.active_queue import FRESH, REFUSED_BEFORE
from services.scheduler.queue.scheduling_queue import Chosen
from services.scheduler.state.pod_record import PodRecord

Turn = tuple[int, bool, int, int, str]
"""(-priority, False for a nominated pod, rank in the active queue, `since`, uid)."""


def turn(chosen: Chosen) -> Turn:
    """Returns a pod's turn: of equal priority, nominated pods come first, since their victims are evicted for them."""
    priority, rank, since, uid = chosen.order
    return priority, not chosen.pod.nominated, rank, since, uid


def in_turn(line: Sequence[Chosen], has_refused: Callable[[PodRecord], bool]) -> Iterator[tuple[PodRecord, bool]]:
    """Yields (pod, due) in the order in which cycles of one pod each would try them.

    Pods of a class that this cycle has refused move behind the classes that it has not refused.

    Args:
        line: sorted by `turn`.
        has_refused: returns True once the cycle has refused a pod of the same class.
    """
    back: list[tuple[Turn, int]] = []  # put back, by their new turn
    for number, each in enumerate(line):
        while back and back[0][0] < turn(each):
            yield line[heappop(back)[1]][:2]
        if each.order[1] == FRESH and has_refused(each.pod):
            priority, later, _, since, uid = turn(each)
            heappush(back, ((priority, later, REFUSED_BEFORE, since, uid), number))
        else:
            yield each[:2]
    while back:
        yield line[heappop(back)[1]][:2]
