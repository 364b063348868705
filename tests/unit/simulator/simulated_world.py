"""A simulated cluster without servers: steps go into a log in memory and from there into the State."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from services.simulator.api.request_execution import Request
from services.simulator.decide import DueObjects, decide
from services.simulator.kubelet.timers import Timers
from services.simulator.settings import SimulatorSettings
from services.simulator.state import SimulatorState
from shared.events import Cause, Event, RecordedEvent
from shared.kube.instants import SECOND
from tests.support.intents import anything
from tests.support.pods import written_pod

START_NS = 1_800_000_000 * SECOND


class World:
    """One cluster, its log, and the other contexts that it follows."""

    def __init__(self, **settings: Any) -> None:
        self.settings = SimulatorSettings(**({"report_interval_s": 0} | settings))
        self.state = SimulatorState(anything)
        self.timers = Timers(self.settings)
        self.now_ns = START_NS
        self.logs: dict[str, list[RecordedEvent]] = {"cluster": [], "scheduling": []}
        self.step()

    def step(self, *requests: Request, due: DueObjects | None = None) -> list[Any]:
        """Takes one step and appends it. Returns the responses."""
        if due is None:
            due = DueObjects(self.timers.pods_due(self.now_ns, 10_000), self.timers.reports_due(self.now_ns, 10_000))
        step = decide(self.state, requests, due, self.settings, self.now_ns)
        for index, draft in enumerate(step.drafts):
            event = draft.event if index else replace(draft.event, now_ns=self.now_ns)
            self.append("cluster", event, draft.cause)
        return [json.loads(response) for response in step.responses]

    def append(self, context: str, event: Event, cause: Cause | None = None) -> Cause:
        """Records an event of any context, and folds it."""
        log = self.logs.setdefault(context, [])
        log.append(RecordedEvent(context, len(log) + 1, event, self.now_ns, cause))
        self.state.apply(log[-1])
        self.timers.learn(event) if context == "cluster" else None
        return Cause(context, len(log))

    def request(self, verb: str, body: object) -> Any:
        """Executes one request in a step of its own. Returns its response."""
        return self.step(Request(verb, json.dumps(body).encode()))[0]

    def create(self, *bodies: object) -> list[Any]:
        """Creates objects, each in a step of its own. Returns them."""
        return [self.request("create", body) for body in bodies]

    def intend(self, intent: Event, context: str = "scheduling") -> list[Event]:
        """Executes an intent. Returns its outcomes."""
        cause = self.append(context, intent)
        self.step()
        return self.outcomes(cause)

    def outcomes(self, cause: Cause) -> list[Event]:
        """Events of the own log that name this cause, without what an append puts on its first event."""
        return [replace(record.event, now_ns=None) for record in self.logs["cluster"] if record.cause == cause]

    def advance(self, seconds: float) -> None:
        """Advances the time, then takes a step."""
        self.now_ns += int(seconds * SECOND)
        self.step()

    def events(self, kind: type[Event]) -> list[Any]:
        """Events of the own log of one type."""
        return [record.event for record in self.logs["cluster"] if isinstance(record.event, kind)]


def pod(name: str = "web", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """A small pod as a user writes it."""
    return written_pod(name, namespace=namespace, requests={"cpu": "500m", "memory": "512Mi"}, **spec)


def node(name: str = "n1", **metadata: Any) -> dict[str, Any]:
    """A node as a kubelet registers it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name} | metadata,
        "status": {"capacity": {"cpu": "32", "memory": "256Gi", "pods": "110"}},
    }


def shuffled(logs: Mapping[str, Sequence[RecordedEvent]], order: Sequence[int]) -> list[RecordedEvent]:
    """The logs' records in one interleaving: each number of `order` picks the log that goes on."""
    left = {name: list(records) for name, records in sorted(logs.items())}
    mixed = []
    for number in order:
        waiting = [name for name, records in left.items() if records]
        if waiting:
            mixed.append(left[waiting[number % len(waiting)]].pop(0))
    for records in left.values():
        mixed.extend(records)
    return mixed
