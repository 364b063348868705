"""What the ledger knows of quotas: their objects, what is wrong with them, and what trees have to share."""

from typing import Any

import msgspec

from services.quota_ledger.state.published_status import numbers_on
from services.quota_ledger.state.state_fields import ObjectError, StateFields
from shared.admission.quota.quota_validation import check_self
from shared.admission.rejection import AdmissionRejected
from shared.domain.amounts import Amounts, sub, total
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota, declared
from shared.kube.node import Node
from shared.kube.quantity import BadQuantity, amounts

LARGEST = 2**63 - 1
"""More than this a log cannot hold; as a limit it is none."""

STOCK_MAX = {"cpu": LARGEST, "memory": LARGEST // 5}
"""Of the system and default groups, unless their objects say otherwise."""


class QuotaFold(StateFields):
    """The half of the fold that is of quotas and of what they share."""

    def total(self, tree: str) -> Amounts:
        """What a tree should have: the nodes' for the default one less what the others take, an annotation's for another."""
        roots = self.declared_roots()
        if tree:
            root = next((quota for where, quota in roots if where == tree), None)
            return self._total_of(tree, root) if root else {}
        if self._of_nodes is None:
            self._of_nodes = total(node for _, node in sorted(self.nodes.items()))
        sums = dict(self._of_nodes)
        for where, quota in roots:
            if not quota.ignores_default_tree:
                sums = sub(sums, self._total_of(where, quota))
        return sums

    def _total_of(self, tree: str, root: DeclaredQuota) -> Amounts:
        """An annotation that is missing or cannot be read changes nothing."""
        if root.total is not None:
            return root.total
        found = self.projection.trees.get(tree)
        return found.total if found else {}

    def declared_roots(self) -> list[tuple[str, DeclaredQuota]]:
        """QuotaTree id and root of each tree beside the default one, by the tree that a quota was declared in: its label may name one that is
        not there, or that it was not in.
        """
        if self._roots is None:
            quotas, tree_of = sorted(self.projection.names.quotas.items()), self.projection.tree_of
            self._roots = [
                (where, quota) for name, quota in quotas if quota.is_root and (where := tree_of.get(name, ""))
            ]
        return self._roots

    def object_of(self, name: str) -> DeclaredQuota | None:
        """What the object of that name declares; of several in different namespaces, the first by key.

        The system and default groups are there without an object too. The root's object declares nothing.
        """
        if name == ROOT:
            return None
        keys = self._keys_of.get(name)
        if keys:
            return msgspec.structs.replace(self.objects[min(keys)], deleting=False)
        return DeclaredQuota(name=name, max=STOCK_MAX, weight=STOCK_MAX) if name in RESERVED else None

    def fault_of(self, name: str) -> "ObjectError | None":
        """What is wrong with the newest object of that name in itself; its last good declaration stays."""
        return min((fault for fault in self.faults.values() if fault.name == name), default=None)

    def place_of(self, name: str) -> tuple[str, str]:
        """`resource/namespace/name` of a quota's object, and its uid; both empty where there is none."""
        keys = self._keys_of.get(name)
        return (min(keys), self.objects[min(keys)].uid) if keys else ("", "")

    def _node(self, name: str, node: Node | None) -> None:
        self._of_nodes = None
        if node is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = _readable(node.status.allocatable)

    def _object(self, key: str, raw: dict[str, Any]) -> None:
        self.structure_changes += 1
        name = raw["metadata"]["name"]
        self._numbers(key, name, numbers_on(raw))
        before, fault = self.objects.get(key), None
        try:
            after = _bounded(declared(raw))
            if after != before:
                check_self(raw, after)
        except BadQuantity as error:
            fault = ObjectError(name, "unreadable", f"quota {name}: {error}")
        except AdmissionRejected as error:
            fault = ObjectError(name, error.code, str(error))
        if fault is not None:
            self.faults[key] = fault  # the last good one stays
            self._look_at_quota(name)
            return
        self.faults.pop(key, None)
        self.objects[key] = after
        self._keys_of.setdefault(after.name, {})[key] = None
        self._look_at_quota(after.name)

    def _numbers(self, key: str, name: str, says: tuple[str, ...]) -> None:
        if says:
            self.says[key] = says
            self.published.said(key, name, says)
        else:
            self.says.pop(key, None)

    def _object_gone(self, key: str) -> None:
        self.structure_changes += 1
        self.says.pop(key, None)
        fault, gone = self.faults.pop(key, None), self.objects.pop(key, None)
        if gone is not None:
            self._keys_of[gone.name].pop(key)
        if (there := gone or fault) is not None:
            self._look_at_quota(there.name)

    def _look_at_quota(self, name: str) -> None:
        is_so = self.projection.names.quotas.get(name) == self.object_of(name)
        fault = self.fault_of(name)
        if is_so and self.projection.rejected.get(name, "") == (fault.reason if fault else ""):
            self.quotas_due.pop(name, None)
        else:
            self.quotas_due[name] = None


def spaces_of(quota: DeclaredQuota) -> tuple[str, ...]:
    """The namespaces whose pods may belong to a quota without naming it: those bound to it, and its own if it has that name."""
    return (quota.namespace, *quota.namespaces) if quota.name == quota.namespace else quota.namespaces


def _bounded(quota: DeclaredQuota) -> DeclaredQuota:
    if all(size <= LARGEST for each in (quota.min, quota.max, quota.weight) for size in each.values()):
        return quota
    smaller = (
        {name: min(size, LARGEST) for name, size in each.items()} for each in (quota.min, quota.max, quota.weight)
    )
    return msgspec.structs.replace(quota, **dict(zip(("min", "max", "weight"), smaller, strict=True)))


def _readable(quantities: dict[str, str] | None) -> Amounts:
    try:
        return amounts(quantities or {})
    except BadQuantity:
        return {}
