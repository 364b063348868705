"""Writes of desired state: field groups of existing objects and whole custom resources.

The table of responses and outcomes is in pod_writes.py.
"""

from typing import Any

from services.gateway.effects import desired_state_comparison, outcome_events
from services.gateway.kube_api.api_errors import (
    REFUSALS,
    WRITES_ON_CONFLICT,
    Ambiguous,
    Busy,
    Conflict,
    NamespaceTerminating,
    NotFound,
    Rejected,
)
from services.gateway.kube_api.client import APPLY, KubeApi
from services.gateway.kube_api.resources import RESOURCES, Resource
from services.gateway.kube_api.unused_field_removal import ObservedObject
from shared.events import Event
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.resource_names import VOLUMES


async def write_fields(api: KubeApi, intent: FieldsDesired, version: str) -> tuple[Event, ObservedObject | None]:
    """Writes the values of a field group of an existing object. Twice is harmless: a merge patch sets the same values.

    A volume is read first, and is not given to another claim than the one that it has.

    Args:
        version: the object's newest known resourceVersion, on which the write is conditional; if empty it is read
            first.

    Returns:
        The outcome, and the object as it is after the write.

    Raises:
        Busy: not done, and worth a retry.
        Forbidden: the account may not patch.
    """
    resource = RESOURCES.get(intent.resource)
    if resource is None:
        return outcome_events.rejected(intent, f"{intent.resource} is no resource that the gateway writes"), None
    for _ in range(WRITES_ON_CONFLICT):
        if not version or intent.resource == VOLUMES:
            there = await api.find(resource, intent.name)
            if there is None:
                return outcome_events.rejected(intent, f"{intent.resource} {intent.name} is gone"), None
            if intent.uid and there.uid != intent.uid:
                return outcome_events.superseded(intent), None
            if desired_state_comparison.matches(intent, there):
                return outcome_events.applied(intent), there
            if claim := desired_state_comparison.other_claim(intent, there):
                reason = f"{intent.resource} {intent.name} has the claim {claim}"
                return outcome_events.rejected(intent, reason), None
            version = there.version
        metadata = intent.patch.get("metadata", {}) | {"resourceVersion": version}
        if intent.uid:
            metadata["uid"] = intent.uid
        try:
            seen = await api.patch(
                resource, intent.name, intent.patch | {"metadata": metadata}, subresource=intent.subresource
            )
        except Conflict:
            version = ""
            continue
        except Ambiguous as error:
            # The write was done if the object has the values.
            there = await api.find(resource, intent.name)
            if there is None or not desired_state_comparison.matches(intent, there):
                raise Busy(str(error)) from error
            return outcome_events.applied(intent), there
        except REFUSALS as error:
            # A patch with another uid is answered by 409 or 422, which do not distinguish it from other errors.
            if intent.uid and (there := await api.find(resource, intent.name)) and there.uid != intent.uid:
                return outcome_events.superseded(intent), None
            return outcome_events.rejected(intent, str(error)), None
        return outcome_events.applied(intent), seen
    raise Busy(f"{intent.resource} {intent.name} is being written by others")


async def write_object(
    api: KubeApi, intent: ObjectDesired, version: str, uid: str
) -> tuple[Event, ObservedObject | None]:
    """Creates, updates or deletes a custom resource, so that it has this body or does not exist.

    Server-side apply creates or updates with one request, removes fields that only an earlier desired state set, and
    leaves the status and other clients' fields as they are. Twice is harmless for that reason. Where an object within
    becomes empty whose fields were all ours, the API server merges it to null and rejects that; so it is removed first,
    and then written as empty.

    Args:
        version: the object's newest known resourceVersion, on which the write is conditional; empty if none is known.
        uid: the object's uid if it is known; only that object is deleted.

    Returns:
        The outcome, and the object as it is after the write.

    Raises:
        Busy: not done, and worth a retry.
        Forbidden: the account may not do this.
    """
    resource = RESOURCES.get(intent.resource)
    if resource is None:
        return outcome_events.rejected(intent, f"{intent.resource} is no resource that the gateway writes"), None
    if intent.body is None:
        return await _delete(api, resource, intent, uid), None
    without, is_removed = _without_empty(intent.body), False
    for _ in range(WRITES_ON_CONFLICT):
        try:
            try:
                seen = await api.patch(
                    resource, intent.name, _applied(resource, intent, intent.body, version), how=APPLY
                )
            except Rejected:
                if is_removed or without == intent.body:
                    raise
                is_removed = True
                seen = await api.patch(resource, intent.name, _applied(resource, intent, without, version), how=APPLY)
                version = seen.version
                continue
        except Conflict:
            # Another client has written or deleted the object meanwhile.
            there = await api.find(resource, intent.name)
            version = there.version if there else ""
            continue
        except Ambiguous as error:
            raise Busy(str(error)) from error
        except REFUSALS as error:
            return outcome_events.rejected(intent, str(error)), None
        return outcome_events.applied(intent), seen
    raise Busy(f"{intent.resource} {intent.name} is being written by others")


async def _delete(api: KubeApi, resource: Resource, intent: ObjectDesired, uid: str) -> Event:
    for _ in range(WRITES_ON_CONFLICT):
        try:
            await api.delete(resource, intent.name, uid=intent.uid or uid)
        except NotFound:
            return outcome_events.applied(intent)
        except Conflict:
            # Another object may have the name by now, or the answer is about something else, such as a webhook's.
            there = await api.find(resource, intent.name)
            if there is None or (intent.uid and there.uid != intent.uid):
                return outcome_events.applied(intent)
            uid = there.uid
            continue
        except Ambiguous as error:
            if await api.find(resource, intent.name) is not None:
                raise Busy(str(error)) from error
        except (NamespaceTerminating, Rejected) as error:
            return outcome_events.rejected(intent, str(error))
        return outcome_events.applied(intent)
    raise Busy(f"{intent.resource} {intent.name} is being written by others")


def _without_empty(body: dict[str, Any]) -> dict[str, Any]:
    """Returns a body without the objects in it that are empty, or become so."""
    parts = {key: _without_empty(part) if isinstance(part, dict) else part for key, part in body.items()}
    return {key: part for key, part in parts.items() if part != {}}


def _applied(resource: Resource, intent: ObjectDesired, body: dict[str, Any], version: str) -> dict[str, Any]:
    """Returns the body of a server-side apply: with apiVersion, kind, name and, if known, resourceVersion."""
    namespace, _, name = intent.name.rpartition("/")
    metadata: dict[str, Any] = {"name": name, **body.get("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    if version:
        metadata["resourceVersion"] = version
    return body | {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
