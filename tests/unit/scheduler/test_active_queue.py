"""Active pods come in one order, whatever was added, removed and refused before."""

from collections import Counter
from itertools import islice
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.queue.active_queue import FRESH, REFUSED_BEFORE, ActiveQueue
from services.scheduler.state.pod_equivalence_class import PodClass
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import pod


class Step(NamedTuple):
    """One step: a pod is added, added again or removed, or pods of a class are refused or no longer refused."""

    kind: str
    class_: int
    number: int
    since: int


CLASSES = 4
SUB_PRIORITIES = (0, 2, 0, -1)
"""By class."""
STEPS = st.builds(
    Step,
    st.sampled_from(("push", "push", "push", "go", "refuse", "allow", "look")),
    st.integers(0, CLASSES - 1),
    st.integers(0, 11),
    st.integers(0, 30),
)


def classes() -> list[PodClass]:
    specs = (pod(f"c{number}", priority=(None, 9500)[number % 2]) for number in range(CLASSES))
    return [PodClass(str(number).encode(), spec) for number, spec in enumerate(specs)]


@settings(deadline=None, max_examples=examples(300))
@given(st.lists(STEPS, max_size=60))
def test_they_come_in_the_order_of_a_plain_sort(steps: list[Step]) -> None:
    pod_classes, tickets, refused = classes(), dict[str, int](), Counter[int]()
    due, there = ActiveQueue(tickets), dict[str, tuple[int, int, int]]()

    def expected() -> list[Any]:
        return sorted(
            (
                (-pod_classes[of].priority, -SUB_PRIORITIES[of], REFUSED_BEFORE if refused[of] else FRESH, since, uid),
                ticket,
            )
            for uid, (of, since, ticket) in there.items()
        )

    for ticket, step in enumerate(steps):
        uid = f"{step.class_}-{step.number}"
        if step.kind == "push":
            tickets[uid] = ticket
            there[uid] = step.class_, step.since, ticket
            due.push(pod_classes[step.class_], SUB_PRIORITIES[step.class_], step.since, uid, ticket)
        elif step.kind == "go":
            there.pop(uid, None)
            tickets.pop(uid, None)
        elif step.kind == "refuse" or (step.kind == "allow" and refused[step.class_]):
            by = 1 if step.kind == "refuse" else -1
            refused[step.class_] += by
            due.note_refused(pod_classes[step.class_], by)
        elif step.kind == "look":
            assert list(islice(due.in_order(), step.number)) == expected()[: step.number]
    assert list(due.in_order()) == expected()
