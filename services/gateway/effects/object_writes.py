"""Writes of desired state to the Kubernetes API, and the outcome of each answer: the table is in pod_writes.py."""

from typing import Any

from services.gateway.effects import drift, outcomes
from services.gateway.effects.pod_writes import REFUSALS
from services.gateway.kube_api.api_errors import (
    Ambiguous,
    Busy,
    Conflict,
    NamespaceTerminating,
    NotFound,
    Rejected,
)
from services.gateway.kube_api.client import APPLY, KubeApi
from services.gateway.kube_api.resources import RESOURCES, Resource
from services.gateway.watch.field_filter import Seen
from shared.events import Event
from shared.events.intents import FieldsDesired, ObjectDesired

WRITES_ON_CONFLICT = 4
"""How often a level is read and written again when others write the object at the same time, within one try."""


async def write_fields(api: KubeApi, intent: FieldsDesired, version: str) -> tuple[Event, Seen | None]:
    """Give a field group of an existing object its values. Twice is harmless: a merge patch says how it must be.

    Args:
        version: the object's newest known resourceVersion, on which the write is conditional; empty reads it first.

    Returns:
        The outcome, and the object as it is after the write.

    Raises:
        Busy: it was not done, and may be later.
        Forbidden: the account may not patch.
    """
    resource = RESOURCES.get(intent.resource)
    if resource is None:
        return outcomes.rejected(intent, f"{intent.resource} is no resource that the gateway writes"), None
    for _ in range(WRITES_ON_CONFLICT):
        if not version:
            there = await api.find(resource, intent.name)
            if there is None:
                return outcomes.rejected(intent, f"{intent.resource} {intent.name} is gone"), None
            if intent.uid and there.uid != intent.uid:
                return outcomes.superseded(intent), None
            if drift.agrees(intent, there):
                return outcomes.written(intent), there
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
        except Ambiguous as error:  # done if the object says so
            there = await api.find(resource, intent.name)
            if there is None or not drift.agrees(intent, there):
                raise Busy(str(error)) from error
            return outcomes.written(intent), there
        except REFUSALS as error:
            if intent.uid and (there := await api.find(resource, intent.name)) and there.uid != intent.uid:
                return outcomes.superseded(intent), None  # the server calls another uid invalid
            return outcomes.rejected(intent, str(error)), None
        return outcomes.written(intent), seen
    raise Busy(f"{intent.resource} {intent.name} is being written by others")


async def write_object(api: KubeApi, intent: ObjectDesired, version: str, uid: str) -> tuple[Event, Seen | None]:
    """Make a custom resource exist with this content, or not exist.

    Written by server-side apply: one request creates or updates, takes away what an earlier level said and this one does not,
    and leaves status and the fields of others alone. Twice is harmless for that reason.

    Args:
        version: the object's newest known resourceVersion, on which the write is conditional; empty when none is known.
        uid: the object's, when it is known; what is deleted.

    Returns:
        The outcome, and the object as it is after the write.

    Raises:
        Busy: it was not done, and may be later.
        Forbidden: the account may not do this.
    """
    resource = RESOURCES.get(intent.resource)
    if resource is None:
        return outcomes.rejected(intent, f"{intent.resource} is no resource that the gateway writes"), None
    if intent.body is None:
        return await _delete(api, resource, intent, uid), None
    for _ in range(WRITES_ON_CONFLICT):
        try:
            seen = await api.patch(resource, intent.name, _applied(resource, intent, version), how=APPLY)
        except Conflict:  # written by another meanwhile, or gone
            there = await api.find(resource, intent.name)
            version = there.version if there else ""
            continue
        except Ambiguous as error:  # what it should have taken away cannot be read back: apply again
            raise Busy(str(error)) from error
        except REFUSALS as error:
            return outcomes.rejected(intent, str(error)), None
        return outcomes.written(intent), seen
    raise Busy(f"{intent.resource} {intent.name} is being written by others")


async def _delete(api: KubeApi, resource: Resource, intent: ObjectDesired, uid: str) -> Event:
    for _ in range(WRITES_ON_CONFLICT):
        try:
            await api.delete(resource, intent.name, uid=uid)
        except NotFound:
            return outcomes.written(intent)
        except Conflict:  # another object has the name by now; it must not be there either
            there = await api.find(resource, intent.name)
            if there is None:
                return outcomes.written(intent)
            uid = there.uid
            continue
        except Ambiguous as error:
            if await api.find(resource, intent.name) is not None:
                raise Busy(str(error)) from error
        except (NamespaceTerminating, Rejected) as error:
            return outcomes.rejected(intent, str(error))
        return outcomes.written(intent)
    raise Busy(f"{intent.resource} {intent.name} is being written by others")


def _applied(resource: Resource, intent: ObjectDesired, version: str) -> dict[str, Any]:
    """The body of an apply: it must name what it is about, and may name the version that it rests on."""
    body = dict(intent.body or {})
    namespace, _, name = intent.name.rpartition("/")
    metadata: dict[str, Any] = {"name": name, **body.get("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    if version:
        metadata["resourceVersion"] = version
    return body | {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
