"""Volumes for a waiting claim on a node: one that is free, or one that its class provisions there.

Source: upstream Kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go and
component-helpers/storage/volume.
"""

from collections.abc import Mapping

import numpy as np

from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.volume_catalog import VolumeCatalog
from services.scheduler.kernels.array_types_and_row_selection import Bools
from services.scheduler.plugins.helper.node_selectors import term_matches
from shared.domain.label_selectors import canonical, selects
from shared.kube.quantity import BadQuantity, nanos
from shared.kube.selectors import LabelSelector, Requirement
from shared.kube.storage import (
    Claim,
    PersistentVolume,
    StorageCapacity,
    TopologyTerm,
)

NO_PROVISIONER = "kubernetes.io/no-provisioner"


def requested_bytes(claim: Claim) -> int:
    """The requested size of a claim, in nanos of a byte; 0 without one."""
    requests = (claim.spec.resources.requests if claim.spec.resources else None) or {}
    return _bytes(requests.get("storage"))


def reachable(table: NodeTable, volume: PersistentVolume) -> Bools:
    """bool[rows]: nodes from which the volume can be reached; computed once for each version of the table."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return np.ones(table.size, np.bool_)
    entry = ("reachable", affinity)
    cached: tuple[int, int, Bools] | None = table.cached.get(entry)
    if cached is None or cached[:2] != (table.version, table.size):
        where = np.zeros(table.size, np.bool_)
        for term in affinity.required.node_selector_terms:
            where |= term_matches(table, term)
        cached = table.cached[entry] = (table.version, table.size, where)
    return cached[2]


def free_volumes(claim: Claim, storage: VolumeCatalog, taken: Mapping[str, str]) -> list[PersistentVolume]:
    """Volumes that fit a claim and belong to no other, the smallest first; only its own where some belong to it.

    Its own are those that are reserved or were chosen for it: another pod that uses the claim goes where these are.

    Args:
        taken: volume -> claim, of choices that are not observed yet.
    """
    size, selector = requested_bytes(claim), canonical(claim.spec.selector)
    found: list[tuple[bool, int, str, PersistentVolume]] = []
    for name, volume in storage.of_class(claim.spec.storage_class_name or "").items():
        spec = volume.spec
        mine = spec.claim_ref is not None and f"{spec.claim_ref.namespace}/{spec.claim_ref.name}" == claim.metadata.key
        if mine and spec.claim_ref is not None and spec.claim_ref.uid not in ("", claim.metadata.uid):
            continue
        if not mine and (spec.claim_ref is not None or volume.status.phase not in ("", "Available")):
            continue
        holder = taken.get(name) or storage.chosen_for(volume) or claim.metadata.key
        if (
            holder != claim.metadata.key and _needs(storage.claims.get(holder), name)
        ) or volume.metadata.deletion_timestamp is not None:
            continue
        capacity = _bytes((spec.capacity or {}).get("storage"))
        fits = (
            capacity >= size
            and (spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
            and set(claim.spec.access_modes) <= set(spec.access_modes)
            and (claim.spec.selector is None or (selector is not None and selects(selector, volume.metadata.labels)))
        )
        if fits:
            is_ours = mine or claim.metadata.key in (taken.get(name), storage.chosen_for(volume))
            found.append((not is_ours, capacity, name, volume))
    found.sort(key=lambda entry: entry[:3])
    return [volume for is_free, *_, volume in found if is_free == found[0][0]]


def _needs(claim: Claim | None, volume: str) -> bool:
    """Returns True for a claim for which a volume was chosen, and that has no other volume by now. It may have this one
    before the volume is observed with its claim.
    """
    return claim is not None and claim.spec.volume_name in ("", volume)


def can_provision(claim: Claim, storage: VolumeCatalog, table: NodeTable) -> tuple[Bools, Bools]:
    """(bool[rows], bool[rows]): nodes where the claim's class provisions volumes, and where enough storage is left."""
    nowhere, everywhere = np.zeros(table.size, np.bool_), np.ones(table.size, np.bool_)
    class_ = storage.class_of(claim)
    if class_ is None or not class_.provisioner or class_.provisioner == NO_PROVISIONER:
        return nowhere, everywhere
    made = everywhere
    if class_.allowed_topologies:
        made = nowhere.copy()
        for term in class_.allowed_topologies:
            made |= _allowed(table, term)
    driver = storage.drivers.get(class_.provisioner)
    if driver is None or not driver.spec.storage_capacity:
        return made, everywhere
    enough = nowhere.copy()
    for capacity in storage.capacities.values():
        if capacity.storage_class_name == class_.metadata.name and _largest(capacity) >= requested_bytes(claim):
            enough |= _selected(table, capacity.node_topology)
    return made, enough


def _allowed(table: NodeTable, term: TopologyTerm) -> Bools:
    where = np.ones(table.size, np.bool_)
    for expression in term.match_label_expressions:
        one_of = Requirement(key=expression.key, operator="In", values=expression.values)
        where &= table.labels.matches(one_of, table.size)
    return where


def _selected(table: NodeTable, selector: LabelSelector | None) -> Bools:
    """bool[rows]: nodes that a label selector matches; none without a selector."""
    read = canonical(selector)
    where = np.full(table.size, read is not None)
    for requirement in read or ():
        where &= table.labels.matches(requirement, table.size)
    return where


def _largest(capacity: StorageCapacity) -> int:
    """The largest volume that can be provisioned there."""
    return _bytes(capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity)


def _bytes(quantity: str | None) -> int:
    """A quantity in exact nanos of a byte, 0 for none that can be read."""
    if not quantity:
        return 0
    try:
        return nanos(quantity)
    except BadQuantity:
        return 0
