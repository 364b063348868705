"""State of the admission rules, folded from `cluster`.

It has profiles, namespaces, priority classes, quotas, two ConfigMaps and the labels of nodes.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shared.admission.pod.qos_validation import REQUIRED_LABELS, RequiredLabels, required_labels
from shared.admission.quota.quota_topology import Topology
from shared.admission.slo_config.configmap_validation import NAME as SLO_CONFIG
from shared.events import Event
from shared.events.cluster import InitialListCompleted, NodeDeleted, NodeObserved, ObjectDeleted, ObjectObserved
from shared.kube import resource_names
from shared.kube.elastic_quota import RESOURCES as QUOTAS
from shared.kube.elastic_quota import declared
from shared.kube.quantity import BadQuantity

Raw = dict[str, Any]
Labels = dict[str, str]

NAMESPACES = "namespaces"
CLASSES = resource_names.PRIORITY_CLASSES
PROFILES = resource_names.PROFILES
QUOTA_PROFILES = resource_names.QUOTA_PROFILES
CONFIG_MAPS = "configmaps"

_KEPT = frozenset({NAMESPACES, CLASSES, PROFILES, QUOTA_PROFILES, *QUOTAS})
_KEPT_CONFIG_MAPS = frozenset({SLO_CONFIG, REQUIRED_LABELS})


class StoredAdmission(msgspec.Struct):
    """Stored form of AdmissionState in a snapshot."""

    listed: bool
    objects: dict[str, dict[str, Raw]]
    nodes: dict[str, Labels]
    required: dict[str, RequiredLabels]


class AdmissionState:
    """Folds observations.

    Attributes:
        listed: the initial lists are complete; before that, no request can be evaluated.
        nodes: name -> labels.
        required: key of a ConfigMap -> the labels that it requires, of its last readable version.
        topology: the readable quotas.
        changes: number of changes in this process.
    """

    def __init__(self) -> None:
        self.listed = False
        self.nodes: dict[str, Labels] = {}
        self.required: dict[str, RequiredLabels] = {}
        self.topology = Topology()
        self.changes = 0
        self._objects: dict[str, dict[str, Raw]] = {}

    def apply(self, event: Event) -> None:
        """Folds one observation."""
        match event:
            case ObjectObserved(resource=resource, name=key, object=raw) if _keeps(resource, key):
                self._objects.setdefault(resource, {})[key] = raw
                self._derive(resource, key, raw)
            case ObjectDeleted(resource=resource, name=key, uid=uid) if _keeps(resource, key):
                there = self._objects.get(resource, {})
                if key not in there or uid not in ("", there[key]["metadata"].get("uid", "")):
                    return
                self._derive(resource, key, None, there.pop(key))
            case NodeObserved(node=name, object=node):
                labels = node.metadata.labels or {}
                if self.nodes.get(name) == labels:
                    return
                self.nodes[name] = labels
            case NodeDeleted(node=name):
                self.nodes.pop(name, None)
            case InitialListCompleted():
                self.listed = True
            case _:
                return
        self.changes += 1

    def objects(self, resource: str) -> Sequence[Raw]:
        """Returns all objects of a resource."""
        return list(self._objects.get(resource, {}).values())

    def by_name(self, resource: str) -> Mapping[str, Raw]:
        """Returns all objects of a cluster-scoped resource by name."""
        return self._objects.get(resource, {})

    def quotas_named(self, name: str) -> list[tuple[str, str]]:
        """Returns (resource, key) of all quotas with that name; a pod's label is ambiguous if there are several."""
        return [(resource, key) for resource, key, raw in self._quotas() if raw["metadata"]["name"] == name]

    def config_map(self, key: str) -> Raw | None:
        """Returns one of the two kept ConfigMaps."""
        return self._objects.get(CONFIG_MAPS, {}).get(key)

    def _derive(self, resource: str, key: str, raw: Raw | None, gone: Raw | None = None) -> None:
        if resource in QUOTAS:
            self.topology.drop((raw or gone or {})["metadata"]["name"])
            if raw is not None:
                with contextlib.suppress(BadQuantity):
                    self.topology.put(declared(raw), raw)
        elif resource == CONFIG_MAPS and key.endswith(f"/{REQUIRED_LABELS}"):
            self.required[key] = required_labels(raw, self.required.get(key, RequiredLabels()))

    def _quotas(self) -> Iterator[tuple[str, str, Raw]]:
        for resource in QUOTAS:
            for key, raw in self._objects.get(resource, {}).items():
                yield resource, key, raw

    def stored(self) -> StoredAdmission:
        """Returns the stored form."""
        objects = {resource: there for resource, there in self._objects.items() if there}
        return StoredAdmission(self.listed, objects, self.nodes, self.required)

    def restore(self, stored: StoredAdmission) -> None:
        """Restores what `stored` returned."""
        self.listed, self.nodes, self.required = stored.listed, stored.nodes, stored.required
        self._objects = stored.objects
        self.topology = Topology()
        for resource, key, raw in self._quotas():
            self._derive(resource, key, raw)


def _keeps(resource: str, key: str) -> bool:
    if resource == CONFIG_MAPS:
        return key.rpartition("/")[2] in _KEPT_CONFIG_MAPS
    return resource in _KEPT
