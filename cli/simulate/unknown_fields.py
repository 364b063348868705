"""Fields of a pod or node that the API does not have: a typing error that would otherwise pass as a field left out.

The types of this system have the fields that a decision reads; `UNREAD` has the others of the API.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from shared.closest_name import did_you_mean
from shared.kube.meta import Metadata, OwnerReference
from shared.kube.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from shared.kube.pod import Container, ContainerPort, Pod, PodSpec, PodStatus, ResourceRequirements, Volume

UNREAD: Mapping[type[msgspec.Struct], Sequence[str]] = {
    Pod: ("apiVersion", "kind"),
    Metadata: (
        [
            "deletionGracePeriodSeconds",
            "finalizers",
            "generateName",
            "generation",
            "managedFields",
            "resourceVersion",
            "selfLink",
        ]
    ),
    OwnerReference: ("blockOwnerDeletion",),
    PodSpec: (
        [
            "automountServiceAccountToken",
            "dnsConfig",
            "dnsPolicy",
            "enableServiceLinks",
            "ephemeralContainers",
            "hostAliases",
            "hostIPC",
            "hostPID",
            "hostUsers",
            "hostname",
            "hostnameOverride",
            "imagePullSecrets",
            "os",
            "readinessGates",
            "resourceClaims",
            "runtimeClassName",
            "schedulingGroup",
            "securityContext",
            "serviceAccount",
            "serviceAccountName",
            "setHostnameAsFQDN",
            "shareProcessNamespace",
            "subdomain",
            "terminationGracePeriodSeconds",
            "workloadRef",
        ]
    ),
    Container: (
        [
            "args",
            "command",
            "env",
            "envFrom",
            "imagePullPolicy",
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "resizePolicy",
            "restartPolicyRules",
            "securityContext",
            "startupProbe",
            "stdin",
            "stdinOnce",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "tty",
            "volumeDevices",
            "volumeMounts",
            "workingDir",
        ]
    ),
    ContainerPort: ("name",),
    ResourceRequirements: ("claims",),
    Node: ("apiVersion", "kind"),
    NodeSpec: ("configSource", "externalID", "podCIDR", "podCIDRs", "providerID"),
    NodeStatus: (
        [
            "addresses",
            "config",
            "daemonEndpoints",
            "declaredFeatures",
            "features",
            "nodeInfo",
            "phase",
            "runtimeHandlers",
            "volumesAttached",
            "volumesInUse",
        ]
    ),
    NodeCondition: ("lastHeartbeatTime", "message"),
    Taint: ("timeAdded",),
}
"""Type -> fields of the API that nothing reads."""

_NOT_CHECKED = (PodStatus, Volume)
"""A status is written by others, and a volume has the fields of its driver."""


def unknown_fields(pods: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Returns a line for each unknown field, with the closest one of the API; equal ones of many pods are one line.

    Args:
        pods: name and object, as it was given.
    """
    first: dict[tuple[str, str], str] = {}
    counted: Counter[tuple[str, str]] = Counter()
    for name, plain in pods:
        for found in unknown_in(plain, Pod):
            first.setdefault(found, name)
            counted[found] += 1
    return [
        f"Pod {name}{_more(counted[path, close] - 1)}: {path} is no field of the API and is ignored{close}"
        for (path, close), name in first.items()
    ]


def unknown_in(plain: Any, kind: type[msgspec.Struct], path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the path of each field that the API's type does not have, and `; perhaps 'x' is meant` or nothing.

    Args:
        plain: the object, or a part of it, as decoded JSON; what is no object is passed over.
        kind: its type here.
        path: of the part within its object.
    """
    return _unknown(plain, inspect.type_info(kind), path)


def _more(count: int) -> str:
    return f" and {count} more" if count else ""


def _unknown(plain: Any, info: inspect.Type, path: str) -> Iterator[tuple[str, str]]:
    """Yields the path of each unknown field, and the suggestion."""
    if isinstance(info, inspect.UnionType):
        for each in info.types:
            if isinstance(each, inspect.StructType | inspect.CollectionType):
                yield from _unknown(plain, each, path)
    elif isinstance(info, inspect.CollectionType) and isinstance(plain, list):
        for number, item in enumerate(plain):
            yield from _unknown(item, info.item_type, f"{path}[{number}]")
    elif isinstance(info, inspect.StructType) and isinstance(plain, dict) and not issubclass(info.cls, _NOT_CHECKED):
        fields = {field.encode_name: field.type for field in info.fields}
        known = (*fields, *UNREAD.get(info.cls, ()))
        for name, value in plain.items():
            place = f"{path}.{name}" if path else str(name)
            if name in fields:
                yield from _unknown(value, fields[name], place)
            elif name not in known:
                yield place, did_you_mean(str(name), known)
