"""Rights of contexts to carry intents, and the check of one intent against them.

A service declares the intents of its context in its manifest. The gateway and the simulator check each intent while
they fold it; the rules of the gateway's account in the cluster are generated from the same declarations.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from shared.domain.node_lock import NODE_LOCKS
from shared.events import Event
from shared.events.cluster import IntentRefused
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable

Intent = PodPlaced | PodUnschedulable | EvictionRequested | FieldsDesired | ObjectDesired

INTENTS: tuple[type[Event], ...] = (PodPlaced, PodUnschedulable, EvictionRequested, FieldsDesired, ObjectDesired)
"""Types of intents; each ends in an outcome."""

Refusal = Callable[[str, Event], str]
"""Returns why a context may not carry an intent; empty where it may."""


class IntentRight(NamedTuple):
    """An intent that a context may carry.

    Attributes:
        intent: its type.
        resource, subresource: what it writes, such as `pods` and `eviction`.
        fields: of a desired state, or of the node of a placement: the fields it may set, as dotted paths with all that
            lies below them; a path that ends in `*` names every field that begins so. An ObjectDesired without fields
            makes the object exist.
        deletes: an ObjectDesired that removes the object, not one that writes it; an EvictionRequested that deletes the
            pod.
        name: the only object it may name; one that ends in `*` names every object that begins so, and one that begins
            with `*/` names it in any namespace; empty for all.
    """

    intent: type[Event]
    resource: str
    subresource: str = ""
    fields: tuple[str, ...] = ()
    deletes: bool = False
    name: str = ""


BIND = IntentRight(PodPlaced, "pods", "binding")
LOCK_NODES = IntentRight(PodPlaced, "nodes", fields=tuple(f"metadata.annotations.{lock}" for lock in NODE_LOCKS))
"""Locks on the nodes of placements."""
MARK_UNSCHEDULABLE = IntentRight(PodUnschedulable, "pods", "status")
EVICT = IntentRight(EvictionRequested, "pods", "eviction")
DELETE_PODS = IntentRight(EvictionRequested, "pods", deletes=True)
"""Evictions past the disruption budgets of pods."""


def refusal(context: str, rights: Iterable[IntentRight], event: Event) -> str:
    """Returns why a context may not carry an intent; empty where one of its rights covers it."""
    match event:
        case FieldsDesired(resource=resource, subresource=subresource, name=name, patch=patch):
            what, written, deletes = f"{resource}/{subresource}".removesuffix("/"), patch, False
        case ObjectDesired(resource=resource, name=name, body=body):
            what, written, deletes = resource, body or {}, body is None
        case EvictionRequested(deletes=True):
            if any(right.intent is EvictionRequested and right.deletes for right in rights):
                return ""
            return f"{context} does not declare that it may delete pods past their disruption budgets"
        case PodPlaced(node_lock=lock) if lock and not any(
            right.intent is PodPlaced and f"metadata.annotations.{lock}" in right.fields for right in rights
        ):
            return f"{context} does not declare that it may lock nodes by {lock}"
        case _:
            if any(right.intent is type(event) for right in rights):
                return ""
            return f"{context} does not declare {type(event).__name__}"
    found = [
        right
        for right in rights
        if right.intent is type(event)
        and f"{right.resource}/{right.subresource}".removesuffix("/") == what
        and right.deletes == deletes
        and (not right.name or names(right.name, name))
    ]
    if not found:
        verb = "delete" if deletes else "write"
        return f"{context} does not declare that it may {verb} {what} {name}"
    prefixes = tuple(prefix for right in found for prefix in right.fields)
    field = undeclared_field(written, prefixes)
    return f"{context} does not declare {field} of {what}" if field else ""


def refused_outcome(intent: Intent, reason: str) -> IntentRefused:
    """Returns the outcome of an intent that its context may not carry."""
    match intent:
        case FieldsDesired(resource=resource, name=name) | ObjectDesired(resource=resource, name=name):
            uid = ""
        case PodPlaced(pod=name, pod_uid=uid) | PodUnschedulable(pod=name, pod_uid=uid):
            resource = "pods"
        case EvictionRequested(pod=name, pod_uid=uid):
            resource = "pods"
    return IntentRefused(intent=type(intent).__name__, resource=resource, name=name, reason=reason, pod_uid=uid)


def undeclared_field(written: Mapping[str, Any], prefixes: tuple[str, ...], path: str = "") -> str:
    """Returns the first field of a patch or an object that no prefix covers; empty without one."""
    for name, value in written.items():
        here = f"{path}{name}"
        if any(covers(prefix, here) for prefix in prefixes):
            continue
        within = tuple(prefix for prefix in prefixes if prefix.startswith(f"{here}."))
        # An empty object writes this field itself, and so does null.
        if not within or not isinstance(value, Mapping) or not value:
            return here
        if deeper := undeclared_field(value, within, f"{here}."):
            return deeper
    return ""


def names(pattern: str, name: str) -> bool:
    """Reports whether the name of a right names an object, `namespace/name`."""
    if pattern.startswith("*/"):
        namespace, _, own = name.partition("/")
        return bool(namespace) and covers(pattern[2:], own)
    return covers(pattern, name)


def covers(prefix: str, path: str) -> bool:
    """Reports whether a declared path names this field; the fields below it are covered with it."""
    return path.startswith(prefix[:-1]) if prefix.endswith("*") else path == prefix
