"""The tree of quotas, and the rules for the place of a quota in it.

Source: spec/quota.md 5.2, TOPOLOGY; spec/api.md 5.7.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from shared.admission.rejection import AdmissionRejected
from shared.domain.amounts import Amounts, add, largest, total, within_all
from shared.kube.elastic_quota import ROOT, BadResourceList, DeclaredQuota, resource_list
from shared.kube.quantity_text import amount_text


class Topology:
    """Quotas by name, children by parent, quotas by namespace.

    Attributes:
        guaranteed: quota -> its guaranteed amounts, from its status.
    """

    def __init__(self, quotas: Iterable[DeclaredQuota] = ()) -> None:
        self.quotas: dict[str, DeclaredQuota] = {}
        self.children: dict[str, dict[str, None]] = {}
        self.namespaces: dict[str, str] = {}
        self.guaranteed: dict[str, Amounts] = {}
        for quota in quotas:
            self.put(quota)

    def put(self, quota: DeclaredQuota, raw: Mapping[str, Any] | None = None) -> None:
        """Adds or replaces a quota."""
        self.drop(quota.name)
        self.quotas[quota.name] = quota
        self.children.setdefault(quota.parent, {})[quota.name] = None
        for namespace in quota.namespaces:
            self.namespaces[namespace] = quota.name
        if raw is not None:
            self.guaranteed[quota.name] = guaranteed_of(raw)

    def drop(self, name: str) -> None:
        """Removes a quota."""
        if (quota := self.quotas.pop(name, None)) is None:
            return
        self.children[quota.parent].pop(name)
        self.guaranteed.pop(name, None)
        for namespace in quota.namespaces:
            if self.namespaces.get(namespace) == name:
                del self.namespaces[namespace]


def guaranteed_of(raw: Mapping[str, Any]) -> Amounts:
    """Reads the guaranteed amounts of an object's status annotation."""
    with contextlib.suppress(BadResourceList):
        return resource_list(raw["metadata"], "guaranteed") or {}
    return {}


def listed(amounts: Mapping[str, int]) -> str:
    """Formats amounts for messages: `cpu 10, memory 4Gi`."""
    return ", ".join(f"{name} {amount_text(name, size)}" for name, size in sorted(amounts.items())) or "nothing"


def check_cycle(quotas: Mapping[str, DeclaredQuota | None], quota: DeclaredQuota) -> None:
    """Checks that a quota would not be its own ancestor among others, by name.

    Raises:
        AdmissionRejected: `parentCycle`.
    """
    chain, above = {quota.name: None}, quota.parent
    while above not in chain:
        chain[above] = None
        parent = quotas.get(above)
        if parent is None:
            return
        above = parent.parent
    if above != quota.name:
        return  # a cycle of its ancestors, without itself
    parents = ", ".join([*chain, quota.name])
    raise AdmissionRejected(
        "parentCycle", f"quota {quota.name}: its parents form a cycle ({parents}); choose a parent that is not below it"
    )


def checked_place(
    topology: Topology,
    quota: DeclaredQuota,
    before: DeclaredQuota | None,
    guarantees: bool = False,
    keys_may_differ: bool = False,
    raw: Mapping[str, Any] | None = None,
) -> None:
    """Checks the declared place of a quota: tree, parent, resources, minima.

    Raises:
        AdmissionRejected: `treeID`, `parentMissing`, `parentNotParent`, `keys`, `minSum`, `guarantee`.
    """
    if quota.name == ROOT:
        return
    children = [topology.quotas[name] for name in sorted(topology.children.get(quota.name, ()))]
    parent = topology.quotas.get(quota.parent) if quota.parent != ROOT else None
    _check_tree(quota, before, parent, children)
    if quota.parent == ROOT and not quota.is_parent:
        return
    if quota.parent != ROOT:
        if parent is None:
            raise AdmissionRejected(
                "parentMissing", f"quota {quota.name}: its parent {quota.parent} does not exist; create that first"
            )
        if not parent.is_parent:
            raise AdmissionRejected(
                "parentNotParent", f"quota {quota.name}: its parent {parent.name} is not marked is-parent; mark that"
            )
        _check_keys(quota, parent, keys_may_differ=keys_may_differ)
    for child in children:
        _check_keys(child, quota, keys_may_differ=keys_may_differ)
    if quota.force_update or quota.is_root:
        return
    _check_minima(topology, quota, parent, children)
    if guarantees and quota.tree:
        _check_guarantee(topology, quota, guaranteed_of(raw) if raw is not None else {})


def _check_tree(
    quota: DeclaredQuota, before: DeclaredQuota | None, parent: DeclaredQuota | None, children: list[DeclaredQuota]
) -> None:
    if before is not None and before.tree != quota.tree:
        raise AdmissionRejected("treeID", f"quota {quota.name}: its tree is {before.tree!r} and cannot be changed")
    for other in (parent, *children):
        if other is not None and other.tree != quota.tree:
            raise AdmissionRejected(
                "treeID", f"quota {quota.name} is of tree {quota.tree!r}, {other.name} is of {other.tree!r}"
            )


def _check_keys(child: DeclaredQuota, parent: DeclaredQuota, *, keys_may_differ: bool) -> None:
    fits = child.max.keys() <= parent.max.keys() if keys_may_differ else child.max.keys() == parent.max.keys()
    if not fits:
        ours, theirs = ", ".join(sorted(child.max)), ", ".join(sorted(parent.max))
        raise AdmissionRejected("keys", f"quota {child.name} has max of {ours}; its parent {parent.name} of {theirs}")
    if extra := sorted(child.min.keys() - parent.min.keys()):
        raise AdmissionRejected(
            "keys", f"quota {child.name} has min of {', '.join(extra)}; its parent {parent.name} does not"
        )


def _check_minima(
    topology: Topology, quota: DeclaredQuota, parent: DeclaredQuota | None, children: list[DeclaredQuota]
) -> None:
    if parent is not None:
        siblings = (topology.quotas[name] for name in topology.children.get(parent.name, ()) if name != quota.name)
        together = add(quota.min, total(other.min for other in siblings))
        if not within_all(together, parent.min):
            message = (
                f"quota {quota.name}: with it the children of {parent.name} have a min of {listed(together)}, "
                f"above the min of {parent.name}, {listed(parent.min)}: lower its min, or raise that of {parent.name}"
            )
            raise AdmissionRejected("minSum", message)
    below = total(child.min for child in children)
    if not within_all(below, quota.min):
        message = (
            f"quota {quota.name}: its children have a min of {listed(below)}, above its own, {listed(quota.min)}: raise "
            "its min, or lower those of its children"
        )
        raise AdmissionRejected("minSum", message)


def _check_guarantee(topology: Topology, quota: DeclaredQuota, own: Amounts) -> None:
    """Walks up until the guarantee of an ancestor suffices for this quota, its siblings and their parents' siblings."""
    if within_all(quota.min, own):
        return
    need, name, parent = largest(quota.min, own), quota.name, quota.parent
    while parent != ROOT and (above := topology.quotas.get(parent)) is not None:
        siblings = (other for other in topology.children.get(parent, ()) if other != name)
        need = largest(add(need, total(topology.guaranteed.get(other, {}) for other in siblings)), above.min)
        if within_all(need, topology.guaranteed.get(parent, {})):
            return
        name, parent = parent, above.parent
    raise AdmissionRejected(
        "guarantee", f"quota {quota.name}: nothing above it is guaranteed the {listed(need)} that its min needs"
    )
