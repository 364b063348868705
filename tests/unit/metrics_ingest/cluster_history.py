"""Small histories for ingest's tests."""

from collections.abc import Callable, Sequence
from itertools import chain
from random import Random
from typing import TypeVar

from shared.events import Cause, Draft, Event, RecordedEvent
from shared.fold import State
from shared.kube.instants import SECOND
from shared.kube.pod import Pod
from tests.support.interleavings import interleaved
from tests.support.pods import kept_pod

START_NS = 1_780_000_000 * SECOND
S = TypeVar("S", bound=State)


class Logs:
    """Contexts with the events appended to them, a second apart."""

    def __init__(self) -> None:
        self.contexts: dict[str, list[RecordedEvent]] = {}
        self.now_ns = START_NS

    def append(self, context: str, *events: Event | Draft, cause: Cause | None = None) -> RecordedEvent:
        log = self.contexts.setdefault(context, [])
        self.now_ns += SECOND
        for event in events:
            draft = event if isinstance(event, Draft) else Draft(event, cause)
            log.append(RecordedEvent(context, len(log) + 1, draft.event, self.now_ns, draft.cause))
        return log[-1]

    def in_order(self) -> list[RecordedEvent]:
        """Returns all events, `cluster` first."""
        return list(chain.from_iterable(self.contexts[name] for name in sorted(self.contexts)))

    def interleaved(self, random: Random) -> list[RecordedEvent]:
        """Returns all events in one order, each context's own kept."""
        return list(interleaved(chain.from_iterable(self.contexts.values()), random))


def fold(new: Callable[[], S], records: Sequence[RecordedEvent]) -> S:
    state = new()
    for record in records:
        state.apply(record)
    return state


def pod(name: str, node: str, *, qos: str = "LS", phase: str = "Running", mirror: str = "") -> Pod:
    labels = {"koordinator.sh/qosClass": qos}
    annotations = {"kubernetes.io/config.mirror": mirror} if mirror else None
    return kept_pod(
        name, uid=f"uid-{name}", labels=labels, annotations=annotations, phase=phase, node_name=node, containers=()
    )
