"""Claims, volumes and storage classes, by the keys that plugins look them up by.

An object that cannot be read counts as absent.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.state.chosen_volumes import ChosenVolume
from services.scheduler.state.watched_api_resources import (
    CLAIMS,
    CSI_CAPACITIES,
    CSI_DRIVERS,
    CSI_NODES,
    STORAGE,
    STORAGE_CLASSES,
    VOLUMES,
)
from shared.kube.storage import (
    SELECTED_NODE,
    Claim,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageCapacity,
    StorageClass,
)

_KINDS: Mapping[str, type[msgspec.Struct]] = {
    CLAIMS: Claim,
    VOLUMES: PersistentVolume,
    STORAGE_CLASSES: StorageClass,
    CSI_NODES: CsiNode,
    CSI_DRIVERS: CsiDriver,
    CSI_CAPACITIES: StorageCapacity,
}


class VolumeCatalog:
    """The objects of storage.

    Attributes:
        version: grows with every change.
        claims: `namespace/name` -> claim.
        volumes, classes, nodes, drivers: name -> object; `nodes` by node.
        capacities: `namespace/name` -> capacity.
        chosen, unselected: those of the State (`SchedulerStateFields`).
    """

    def __init__(self) -> None:
        self.version = 0
        self.claims: dict[str, Claim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.nodes: dict[str, CsiNode] = {}
        self.drivers: dict[str, CsiDriver] = {}
        self.capacities: dict[str, StorageCapacity] = {}
        self.chosen: Mapping[str, ChosenVolume] = {}
        self.unselected: Mapping[str, int] = {}
        self._by_class: dict[str, dict[str, PersistentVolume]] = {}
        self._tables: dict[str, dict[str, Any]] = dict(
            zip(
                STORAGE,
                (self.claims, self.volumes, self.classes, self.nodes, self.drivers, self.capacities),
                strict=True,
            )
        )

    def chosen_for(self, volume: PersistentVolume) -> str:
        """Returns the claim that a placement chose a volume for; empty without one."""
        chosen = self.chosen.get(volume.metadata.uid)
        return "" if chosen is None else chosen.claim

    def waits_for_node(self, claim: Claim) -> bool:
        """Returns True for a claim whose volume is made or chosen once a node is selected, which none is yet."""
        class_ = self.class_of(claim)
        is_selected = SELECTED_NODE in (claim.metadata.annotations or {})
        return not (claim.spec.volume_name or is_selected) and class_ is not None and class_.waits

    def set(self, resource: str, key: str, object_: Mapping[str, Any] | None) -> None:
        """Sets an object as observed, None when it is deleted."""
        self.version += 1
        table = self._tables[resource]
        before = table.pop(key, None)
        if isinstance(before, PersistentVolume):
            self._by_class[before.spec.storage_class_name].pop(key, None)
        if object_ is None:
            return
        try:
            read = table[key] = msgspec.convert(object_, _KINDS[resource])
        except msgspec.ValidationError:
            return
        if isinstance(read, PersistentVolume):
            self._by_class.setdefault(read.spec.storage_class_name, {})[key] = read

    def of_class(self, name: str) -> Mapping[str, PersistentVolume]:
        """Returns the volumes of a storage class."""
        return self._by_class.get(name, {})

    def class_of(self, claim: Claim) -> StorageClass | None:
        """Returns the storage class of a claim."""
        beta = (claim.metadata.annotations or {}).get("volume.beta.kubernetes.io/storage-class")
        return self.classes.get(beta if beta is not None else claim.spec.storage_class_name or "")
