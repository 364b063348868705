"""Objects beyond nodes and pods that plugins read: namespaces, workloads, volumes, budgets and topologies.

A function of the State's objects, kept current by the cluster cache. An object that cannot be read counts as absent:
one broken object does not end the service.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from services.scheduler.cache.disruption_budgets import Budget
from services.scheduler.cache.network_domains import NetworkTopology
from services.scheduler.cache.reservation_holds import ReservationHolds
from services.scheduler.cache.volume_catalog import VolumeCatalog
from services.scheduler.state.watched_api_resources import (
    BUDGETS,
    CONFIG_MAPS,
    DEVICES,
    NAMESPACES,
    NETWORK_TOPOLOGIES,
    NODE_TOPOLOGIES,
    OPERATING_PODS,
    OWNERS,
    RESERVATIONS,
    SERVICES,
    STORAGE,
)
from shared.domain.label_selectors import Selector, canonical, ordered, selects
from shared.domain.network_topology import OBJECT
from shared.domain.reservation import UnreadableReservation, problem_of_amounts, read_reservation
from shared.kube.amounts_as_text import read_object
from shared.kube.device import Device
from shared.kube.gpu_templates import CONFIG_MAP as GPU_TEMPLATES
from shared.kube.gpu_templates import GpuTemplates, read_gpu_templates
from shared.kube.meta import Metadata
from shared.kube.node_resource_topology import NodeResourceTopology
from shared.kube.selectors import LabelSelector, Requirement


class ClusterObjects:
    """Objects by the keys that plugins look them up by.

    Attributes:
        gates: the scheduler's feature gates that are on.
        version: grows with every change.
        namespaces: name -> labels.
        services: namespace -> name -> selector of the service.
        owners: (kind, `namespace/name`) -> selector of the workload.
        topologies: node -> its NodeResourceTopology.
        devices: node -> its Device.
        gpu_templates: templates of shared GPUs.
        storage: claims, volumes and what limits them.
        budgets: `namespace/name` -> disruption budget.
        reservations: Reservations and their owners.
        network: the layers of the network, and the nodes in them.
    """

    def __init__(self) -> None:
        self.gates: frozenset[str] = frozenset()
        self.version = 0
        self.namespaces: dict[str, dict[str, str]] = {}
        self.services: dict[str, dict[str, Selector]] = {}
        self.owners: dict[tuple[str, str], Selector] = {}
        self.topologies: dict[str, NodeResourceTopology] = {}
        self.devices: dict[str, Device] = {}
        self.gpu_templates: GpuTemplates = {}
        self.storage = VolumeCatalog()
        self.budgets: dict[str, Budget] = {}
        self.reservations = ReservationHolds()
        self.network = NetworkTopology()

    def set(self, resource: str, key: str, object_: Mapping[str, Any] | None) -> None:
        """Sets an object as observed, None when it is deleted. Resources that no plugin reads are ignored."""
        reader = _READERS.get(resource)
        if reader is None:
            return
        self.version += 1
        reader(self, resource, key, object_)

    def budgets_of(self) -> tuple[Budget, ...]:
        """Returns the disruption budgets in the order of their names."""
        return tuple(self.budgets[key] for key in sorted(self.budgets))

    def namespaces_selected(self, selector: Selector) -> frozenset[str]:
        """Returns the namespaces whose labels match a selector."""
        return frozenset(name for name, labels in self.namespaces.items() if selects(selector, labels))


def _set_namespace(around: ClusterObjects, _: str, key: str, object_: Mapping[str, Any] | None) -> None:
    if object_ is None:
        around.namespaces.pop(key, None)
    else:
        around.namespaces[key] = dict((object_.get("metadata") or {}).get("labels") or {})


def _set_service(around: ClusterObjects, _: str, key: str, object_: Mapping[str, Any] | None) -> None:
    namespace, _, name = key.rpartition("/")
    selector = ((object_ or {}).get("spec") or {}).get("selector")
    if selector is None:
        around.services.get(namespace, {}).pop(name, None)
    else:
        labels = (Requirement(key=label, operator="In", values=(value,)) for label, value in selector.items())
        around.services.setdefault(namespace, {})[name] = ordered(labels)


def _set_owner(around: ClusterObjects, resource: str, key: str, object_: Mapping[str, Any] | None) -> None:
    owner = (OWNERS[resource], key)
    selector = ((object_ or {}).get("spec") or {}).get("selector")
    around.owners.pop(owner, None)
    if selector is None:
        return
    if resource == "replicationcontrollers":  # plain labels, older than selectors
        selector = {"matchLabels": selector}
    try:
        read = canonical(msgspec.convert(selector, LabelSelector))
    except msgspec.ValidationError:
        return
    if read is not None:
        around.owners[owner] = read


def _set_topology(around: ClusterObjects, _: str, key: str, object_: Mapping[str, Any] | None) -> None:
    around.topologies.pop(key, None)
    if object_ is None:
        return
    try:
        around.topologies[key] = read_object(object_, NodeResourceTopology)
    except msgspec.ValidationError:
        return


def _set_device(around: ClusterObjects, _: str, key: str, object_: Mapping[str, Any] | None) -> None:
    around.devices.pop(key, None)
    if object_ is None:
        return
    try:
        around.devices[key] = read_object(object_, Device)
    except msgspec.ValidationError:
        around.devices[key] = Device(metadata=Metadata(name=key))  # its cards are given to nobody


def _set_gpu_templates(around: ClusterObjects, _: str, key: str, object_: Mapping[str, Any] | None) -> None:
    if key == GPU_TEMPLATES:
        around.gpu_templates = read_gpu_templates(object_)


def _set_budget(around: ClusterObjects, _: str, key: str, object_: Mapping[str, Any] | None) -> None:
    around.budgets.pop(key, None)
    spec, status = ((object_ or {}).get(part) or {} for part in ("spec", "status"))
    try:
        selector = canonical(msgspec.convert(spec.get("selector"), LabelSelector | None))
        allowed = msgspec.convert(status.get("disruptionsAllowed") or 0, int)
        disrupted = frozenset(msgspec.convert(status.get("disruptedPods") or {}, dict[str, Any]))
    except msgspec.ValidationError:
        return
    if selector:
        around.budgets[key] = Budget(key.rpartition("/")[0], selector, allowed, disrupted, key)


def _set_storage(around: ClusterObjects, resource: str, key: str, object_: Mapping[str, Any] | None) -> None:
    around.storage.set(resource, key, object_)


def _set_reservation(around: ClusterObjects, _: str, key: str, object_: Mapping[str, Any] | None) -> None:
    try:
        reservation = None if object_ is None else read_reservation(object_)
    except UnreadableReservation:
        reservation = None
    around.reservations.set(key, None if reservation is None or problem_of_amounts(reservation) else reservation)


def _set_operating_pod(around: ClusterObjects, resource: str, key: str, object_: Mapping[str, Any] | None) -> None:
    _set_reservation(around, resource, f"pod/{key}", object_)


def _set_network(around: ClusterObjects, _: str, key: str, object_: Mapping[str, Any] | None) -> None:
    if key == OBJECT:
        around.network.set(object_)


_READERS: Mapping[str, Callable[[ClusterObjects, str, str, Mapping[str, Any] | None], None]] = {
    NAMESPACES: _set_namespace,
    SERVICES: _set_service,
    **dict.fromkeys(OWNERS, _set_owner),
    **dict.fromkeys(STORAGE, _set_storage),
    BUDGETS: _set_budget,
    NODE_TOPOLOGIES: _set_topology,
    DEVICES: _set_device,
    CONFIG_MAPS: _set_gpu_templates,
    RESERVATIONS: _set_reservation,
    OPERATING_PODS: _set_operating_pod,
    NETWORK_TOPOLOGIES: _set_network,
}
