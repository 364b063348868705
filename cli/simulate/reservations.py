"""Reservations in `koord simulate`: placed before the pods, used by their owners, and ended by use.

The life cycle is the scheduler's own; what it desires of the objects is carried out at once. Time passes only between
rounds, so none expires that has not expired already.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from services.scheduler.in_memory_scheduler import InMemoryScheduler
from services.scheduler.reservations.life_cycle import life_cycle_drafts
from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.instants import instant_text

Object = dict[str, Any]

KIND = "Reservation"


class Held(msgspec.Struct, frozen=True):
    """The outcome of one Reservation.

    Attributes:
        phase: at the end.
        node: the node that holds it, or held it; empty for none.
        pods: those that use it.
        message: why no node holds it.
    """

    reservation: str
    phase: str
    node: str = ""
    pods: tuple[str, ...] = ()
    message: str = ""


def observe(engine: InMemoryScheduler, reservations: Iterable[Mapping[str, Any]], now_ns: int) -> None:
    """Observes the Reservations of a file; those without a uid or a time of creation get them."""
    for plain in reservations:
        name = plain["metadata"]["name"]
        defaults = {"uid": f"reservation-{name}", "creationTimestamp": instant_text(now_ns)}
        body = {
            **plain,
            "metadata": {**defaults, **plain["metadata"]},
            "spec": _for_a_profile(plain, engine.schedulers),
        }
        _observe(engine, name, body, now_ns)


def carry_out(engine: InMemoryScheduler, now_ns: int) -> bool:
    """Carries out what the life cycle desires; returns True where anything changed."""
    changed = False
    for _ in range(len(engine.view.objects.get(RESERVATIONS, {})) + 1):
        engine.cache.settle()
        drafts = life_cycle_drafts(engine.cache, now_ns)
        if not drafts:
            return changed
        changed = True
        for draft in drafts:
            engine.append("scheduling", draft.event, now_ns, draft.cause)
            _apply(engine, draft.event, now_ns)
    return changed


def held(engine: InMemoryScheduler) -> list[Held]:
    """Returns the outcomes, by name."""
    return [_held(name, body) for name, body in sorted(engine.view.objects.get(RESERVATIONS, {}).items())]


def _held(name: str, body: Object) -> Held:
    status = body.get("status") or {}
    owners = tuple(f"{owner['namespace']}/{owner['name']}" for owner in status.get("currentOwners") or ())
    phase = status.get("phase") or "Pending"
    scheduled = [each for each in status.get("conditions") or () if each.get("type") == "Scheduled"]
    message = str(scheduled[0].get("message", "")) if scheduled and phase == "Pending" else ""
    return Held(name, phase, status.get("nodeName", ""), owners, message)


def _apply(engine: InMemoryScheduler, event: object, now_ns: int) -> None:
    there = engine.view.objects.get(RESERVATIONS, {})
    if isinstance(event, FieldsDesired) and event.name in there:
        body = there[event.name]
        _observe(engine, event.name, {**body, "status": event.patch["status"]}, now_ns)
    elif isinstance(event, ObjectDesired) and event.name in there:
        engine.observe([ObjectDeleted(resource=RESERVATIONS, name=event.name, uid=event.uid)], now_ns)


def _observe(engine: InMemoryScheduler, name: str, body: Object, now_ns: int) -> None:
    uid = body["metadata"]["uid"]
    engine.observe([ObjectObserved(resource=RESERVATIONS, name=name, uid=uid, object=body)], now_ns)


def _for_a_profile(plain: Mapping[str, Any], schedulers: tuple[str, ...]) -> Object:
    """Returns the spec, with the first profile where its scheduler is not in the configuration."""
    spec: Object = dict(plain.get("spec") or {})
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return spec
    if template["spec"].get("schedulerName") in schedulers:
        return spec
    return {**spec, "template": {**template, "spec": {**template["spec"], "schedulerName": schedulers[0]}}}
