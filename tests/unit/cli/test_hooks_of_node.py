"""The record in force of each container, from records of several contexts."""

from cli.node.hooks_of_node import hooks_of_node
from shared.events import RecordedEvent
from shared.events.nodes import ContainerHooksReported, HookedContainer


def record(context: str, at_ns: int, state: str) -> RecordedEvent:
    hooked = HookedContainer(container_id="c", pod_uid="u", pod="d/p", container="main", state=state, at_ns=1)
    event = ContainerHooksReported(node="n", boot="b", number=1, at_ns=at_ns, containers=(hooked,))
    return RecordedEvent(context, at_ns, event, at_ns)


def test_an_older_record_of_another_context_does_not_count() -> None:
    older, newer = record("nodes-0", 10, "notApplied"), record("nodes-1", 20, "repaired")
    for records in ([older, newer], [newer, older]):
        (found,) = hooks_of_node("n", records, 5).containers
        assert (found.state, found.event) == ("repaired", "nodes-1/20")
