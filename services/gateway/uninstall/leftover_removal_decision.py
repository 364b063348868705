"""Objects that are left in a cluster after the system's end, and what becomes of each: deleted, freed of the fields that
this system wrote, or kept. Pure.

An object is deleted if every field of it is this system's. One that another client wrote a field of is that client's as
well: only this system's fields are removed. docs/uninstall.md has the table.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from services.gateway.kube_api.resources import CONFIG_MAPS, PODS, RESOURCES, Resource
from services.gateway.needed_rbac_rules import CONFIGURATION_NAME, LEASE_NAME
from services.gateway.uninstall.field_ownership import Raw, describe, is_own, removals
from services.gateway.uninstall.remove_batch_resources_from_zones import keep_zones
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.scheduling import PodUnschedulable
from shared.kube.elastic_quota import PREFIX
from shared.kube.resource_names import CLAIMS, KUBERNETES_EVENTS, NODE_TOPOLOGIES, QUOTAS, VOLUMES
from shared.runtime.declared_intents import DECLARED

Action = Literal["delete", "remove fields", "keep"]

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY_US = "koordstream"

STAYS = frozenset({CLAIMS, VOLUMES, KUBERNETES_EVENTS})
"""Resources that stay: without `claimRef` a volume with data would be free for another claim; Kubernetes Events expire."""

_REGISTRATION = "admissionregistration.k8s.io/v1"
WEBHOOKS = (
    Resource("mutatingwebhookconfigurations.admissionregistration.k8s.io", _REGISTRATION, "MutatingWebhookConfiguration"),
    Resource("validatingwebhookconfigurations.admissionregistration.k8s.io", _REGISTRATION, "ValidatingWebhookConfiguration"),
)  # fmt: skip
SECRETS = Resource("secrets", "v1", "Secret", namespaced=True)
LEASES = Resource("leases.coordination.k8s.io", "coordination.k8s.io/v1", "Lease", namespaced=True)


class Search(NamedTuple):
    """A resource in which objects of this system may be.

    Attributes:
        creates: this system creates such objects.
        key: the only object, if there is one.
        query: selects some of the objects in a list.
        labelled: the object is known by its label, not by the manager of its fields.
        without_fields: this system creates it by an apply without any field, of which the API server records no
            manager. Every other way of creation leaves a record.
    """

    resource: Resource
    creates: bool
    key: str = ""
    query: str = ""
    labelled: bool = False
    without_fields: bool = False


class Leftover(NamedTuple):
    """An object and what becomes of it.

    Attributes:
        key: `namespace/name`, or the name of a cluster-scoped object.
        detail: the removed fields, or the reason.
        body: the object as it was read.
        patches: the merge patches that remove the fields, by subresource.
    """

    search: Search
    key: str
    action: Action
    detail: str
    body: Raw
    patches: Mapping[str, Raw] = MappingProxyType({})

    @property
    def path(self) -> str:
        """Returns the object's path in the API."""
        return self.search.resource.path(self.key)


def searches(secret: str) -> list[Search]:
    """Returns the resources to search, in the order of removal.

    The webhooks come first, as they may refuse all later requests when no gateway answers them.

    Args:
        secret: `namespace/name` of the webhooks' certificates.
    """
    found = [Search(each, creates=True, key=CONFIGURATION_NAME, labelled=True) for each in WEBHOOKS]
    found.append(Search(SECRETS, creates=True, key=secret, labelled=True))
    found.append(Search(LEASES, creates=True, key=f"{secret.partition('/')[0]}/{LEASE_NAME}", labelled=True))
    written: dict[str, Search] = {}
    for right in (right for rights in DECLARED.values() for right in rights):
        if right.resource in STAYS or right.intent not in (FieldsDesired, ObjectDesired, PodUnschedulable):
            continue
        creates = right.intent is ObjectDesired and not right.deletes
        before = written.get(right.resource, Search(RESOURCES[right.resource], creates=False))
        written[right.resource] = Search(
            before.resource,
            creates or before.creates,
            right.name,
            # The status of a pod on a node is its kubelet's business; of a waiting one it names a node or a reason.
            query="fieldSelector=spec.nodeName%3D" if right.resource == PODS.name else "",
            without_fields=(creates and not right.fields) or before.without_fields,
        )
    return found + sorted(written.values(), key=lambda each: (each.resource is CONFIG_MAPS, each.resource.name))


def leftover(search: Search, body: Raw, in_use: Mapping[str, str]) -> Leftover | None:
    """Returns what becomes of an object; None for one that this system has not written.

    Args:
        in_use: quota -> why it is needed, of those that are.
    """
    metadata = body["metadata"]
    key = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    if search.labelled:
        if (metadata.get("labels") or {}).get(MANAGED_BY) == MANAGED_BY_US:
            return Leftover(search, key, "delete", "", body)
        return Leftover(search, key, "keep", f"it lacks the label {MANAGED_BY}: {MANAGED_BY_US}", body)
    made = is_own(body) or (search.without_fields and not metadata.get("managedFields"))
    if not (search.creates and made):
        patches = removals(body)
        if search.resource.name == QUOTAS and "spec" in patches.get("", {}):
            # The root quota of a profile: without its min and max it would be another quota, not the user's own.
            reason = in_use.get(metadata["name"], "others have changed it: delete it if it is not needed")
            return Leftover(search, key, "keep", reason, body)
        if search.resource.name == NODE_TOPOLOGIES:
            patches = keep_zones(patches, body)
        return Leftover(search, key, "remove fields", describe(patches), body, patches) if patches else None
    if search.resource.name == QUOTAS and metadata["name"] in in_use:
        return Leftover(search, key, "keep", in_use[metadata["name"]], body)
    return Leftover(search, key, "delete", "", body)


def quotas_in_use(quotas: Iterable[Raw], pods: Iterable[Raw]) -> dict[str, str]:
    """Returns the quotas that users' objects need, and why: they are the parent of a quota, or the quota of a pod."""
    found: dict[str, str] = {}
    for body in quotas:
        # A quota that this system made itself is no reason to keep its parent.
        parent = _label(body, "parent")
        if parent and not is_own(body):
            found.setdefault(parent, f"ElasticQuota {_key(body)} names it as its parent: delete that one first")
    for body in pods:
        if name := _label(body, "name"):
            found.setdefault(name, f"pod {_key(body)} belongs to it: delete that one first")
    return found


def _label(body: Mapping[str, Any], name: str) -> str:
    return str((body["metadata"].get("labels") or {}).get(PREFIX + name, ""))


def _key(body: Mapping[str, Any]) -> str:
    return f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"
