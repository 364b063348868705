"""One intent for each right that a manifest declares: what its context may carry, and all others may not."""

from collections.abc import Iterator
from typing import Any

from shared.events import Event
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.runtime.declared_intents import DECLARED
from shared.runtime.intent_rights import IntentRight

CONTEXTS = ("scheduling", "quota", "slo", "metrics-0", "nodes-0", "devices-0", "audit")
"""Contexts whose intents the gateway follows."""


def anything(_context: str, _event: Event) -> str:
    """Refuses no intent: for tests of what happens to one that is not refused."""
    return ""


def intents_of_all_contexts() -> Iterator[tuple[IntentRight, Event]]:
    """Yields an intent for each right of each context."""
    for rights in DECLARED.values():
        for right in rights:
            yield right, declared_intent(right)


def declared_intent(right: IntentRight, *, name: str = "shop/a", uid: str = "uid") -> Event:
    """Returns an intent that the right covers and that uses all of its fields.

    Args:
        name: of the object, where the right does not name one.
        uid: of the pod, where the intent is about one.
    """
    named = right.name.replace("*", "x") or name
    if right.intent is PodPlaced:
        lock = right.fields[0].removeprefix("metadata.annotations.") if right.fields else ""
        return PodPlaced(pod=named, pod_uid=uid, node="n1", cycle=1, request={}, node_lock=lock)
    if right.intent is PodUnschedulable:
        return PodUnschedulable(pod=named, pod_uid=uid, cycle=1, code="x", message="x")
    if right.intent is EvictionRequested:
        return EvictionRequested(pod=named, pod_uid=uid, reason="x")
    if right.intent is FieldsDesired:
        return FieldsDesired(
            resource=right.resource, name=named, fields="f", patch=body_of(right), subresource=right.subresource
        )
    return ObjectDesired(resource=right.resource, name=named, body=None if right.deletes else body_of(right))


def body_of(right: IntentRight) -> dict[str, Any]:
    """Returns an object with a value in every declared field."""
    body: dict[str, Any] = {}
    for path in right.fields:
        inner, names = body, _names(path.replace("*", "x"))
        for one in names[:-1]:
            inner = inner.setdefault(one, {})
        inner[names[-1]] = "1"
    return body


def _names(path: str) -> list[str]:
    """Splits a path into names; the name of a label, an annotation or a resource may hold dots itself."""
    for parent in ("metadata.annotations", "metadata.labels", "status.capacity", "status.allocatable", "data"):
        if path.startswith(f"{parent}."):
            return [*parent.split("."), path.removeprefix(f"{parent}.")]
    return path.split(".")
