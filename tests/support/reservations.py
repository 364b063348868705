"""Reservations in a world of the scheduler: their objects, and a gateway that writes what is desired of them."""

from collections.abc import Mapping
from typing import Any

from services.scheduler.reservations.life_cycle import life_cycle_drafts
from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.events import RecordedEvent
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.instants import instant_text
from tests.support.scheduling_world import START_NS, World

Json = dict[str, Any]


def reservation(
    name: str,
    cpu: str = "2",
    *,
    uid: str = "",
    owners: list[Json] | None = None,
    metadata: Mapping[str, Any] | None = None,
    template: Mapping[str, Any] | None = None,
    requests: Mapping[str, str] | None = None,
    created_ns: int = 0,
    **spec: Any,
) -> Json:
    """A Reservation of some cpu for pods with label `app: NAME`, as the API stores it."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, **(requests or {})}}}
    pod = {"schedulerName": "koord-scheduler", "containers": [container], **(template or {})}
    return {
        "metadata": {
            "name": name,
            "uid": uid or f"r-{name}",
            "creationTimestamp": instant_text(created_ns or START_NS),
            **(metadata or {}),
        },
        "spec": {
            "ttl": "24h",
            "owners": owners or [{"labelSelector": {"matchLabels": {"app": name}}}],
            "template": {"spec": pod},
            **spec,
        },
    }


def observe(world: World, body: Json) -> None:
    """Observes a Reservation as it is."""
    metadata = body["metadata"]
    world.observe(ObjectObserved(resource=RESERVATIONS, name=metadata["name"], uid=metadata["uid"], object=body))


def available(world: World, body: Json, node: str, **status: Any) -> None:
    """Observes a Reservation that is available on a node."""
    observe(world, {**body, "status": {"phase": "Available", "nodeName": node, **status}})


def status_of(world: World, name: str) -> Json:
    """The status of a Reservation, as the scheduler has observed it."""
    found: Json = world.view.objects[RESERVATIONS][name].get("status", {})
    return found


def live(world: World) -> list[RecordedEvent]:
    """Lets the life cycle decide, and carries out what it desires, until nothing is left; returns its events."""
    found: list[RecordedEvent] = []
    for _ in range(10):
        cache = world.indexed()
        cache.settle()
        events = world.append_drafts(life_cycle_drafts(cache, world.now_ns))
        if not events:
            return found
        found += events
        for record in events:
            _carry_out(world, record)
        world.read()
    raise AssertionError("the life cycle does not come to rest")


def _carry_out(world: World, record: RecordedEvent) -> None:
    event = record.event
    there = world.view.objects.get(RESERVATIONS, {})
    if isinstance(event, FieldsDesired) and event.name in there and there[event.name]["metadata"]["uid"] == event.uid:
        body = there[event.name]
        observe(world, {**body, "status": {**body.get("status", {}), **event.patch["status"]}})
    if isinstance(event, ObjectDesired) and event.name in there:
        world.observe(ObjectDeleted(resource=RESERVATIONS, name=event.name, uid=event.uid))
