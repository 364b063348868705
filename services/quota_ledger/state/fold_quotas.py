"""The half of the State that follows ElasticQuotas: their objects, errors in these, and the totals of trees."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from services.quota_ledger.state.ledger_state_fields import ObjectError, QuotaObject, StateFields
from services.quota_ledger.state.published_status import numbers_on
from shared.admission.quota.quota_validation import check_self, unreadable_amounts
from shared.admission.rejection import ALSO, AdmissionRejected
from shared.domain.amounts import Amounts, sub, total
from shared.kube.elastic_quota import RESERVED, RESOURCES, ROOT, DeclaredQuota, declared
from shared.kube.instants import BadTime, instant_ns
from shared.kube.node import Node
from shared.kube.quantity import BadQuantity, amounts

LARGEST = 2**63 - 1
"""The log holds no larger amount; as a limit it means no limit."""

STOCK_MAX = {"cpu": LARGEST, "memory": LARGEST // 5}
"""Max of the system and default groups without an object of theirs."""


class QuotaFold(StateFields):
    """Folds quotas and nodes."""

    def total(self, tree: str) -> Amounts:
        """Returns the desired total of a tree.

        The default tree has the allocatable amounts of all nodes, less the totals of trees that take part of them;
        another tree has the total that its root quota is annotated with.
        """
        roots = self.declared_roots()
        if tree:
            root = next((quota for where, quota in roots if where == tree), None)
            return self._total_of(tree, root) if root else {}
        if self._node_total is None:
            self._node_total = total(node for _, node in sorted(self.nodes.items()))
        sums = dict(self._node_total)
        for where, quota in roots:
            if not quota.ignores_default_tree:
                sums = sub(sums, self._total_of(where, quota))
        return sums

    def _total_of(self, tree: str, root: DeclaredQuota) -> Amounts:
        """An annotation that is missing or unreadable changes nothing."""
        if root.total is not None:
            return root.total
        found = self.projection.trees.get(tree)
        return found.total if found else {}

    def declared_roots(self) -> list[tuple[str, DeclaredQuota]]:
        """Returns tree id and root quota of each tree other than the default one.

        The tree in which a quota was recorded counts: its label may name one that does not exist, or a later one.
        """
        if self._roots is None:
            quotas, tree_of = sorted(self.projection.lookup.quotas.items()), self.projection.tree_of
            self._roots = [
                (where, quota) for name, quota in quotas if quota.is_root and (where := tree_of.get(name, ""))
            ]
        return self._roots

    def object_of(self, name: str) -> DeclaredQuota | None:
        """Returns the declaration of the object that has a name.

        The system and default groups exist without an object, too. The root's object declares nothing.
        """
        if name == ROOT:
            return None
        found = self.objects.get(self.owner(name))
        if found is not None:
            return msgspec.structs.replace(found, deleting=False)
        return DeclaredQuota(name=name, max=STOCK_MAX, weight=STOCK_MAX) if name in RESERVED else None

    def error_of(self, name: str) -> ObjectError | None:
        """Returns the error in the object that has a name; its last valid declaration stays in force."""
        return self.object_errors.get(self.owner(name))

    def owner(self, name: str) -> str:
        """Returns the key of the object that has a name: the oldest, then the first by key; empty without one.

        Names count in all namespaces. The webhook admits the first object; without it there may be several.
        """
        return min(self._keys_of.get(name, ()), key=self._age, default="")

    def duplicates_of(self, name: str) -> dict[str, str]:
        """Returns the key of each other object of a name -> the reason why it is not followed."""
        if len(self._keys_of.get(name, ())) < 2 or name == ROOT:
            return {}
        owner = self.owner(name)
        created = self.quota_objects[owner].created_ns
        found = {}
        for key in sorted(self._keys_of[name]):
            if key == owner:
                continue
            is_tie = self.quota_objects[key].created_ns == created
            why = "first by name of those created in the same second" if is_tie else "older"
            found[key] = (
                f"quota {name}: quota names count in all namespaces, and {described(owner)}, which is {why}, has this "
                "one; delete one of the two, or create this one under another name"
            )
        return found

    def rejection_for(self, namespace: str, label: str) -> tuple[str, str] | None:
        """Returns the rejected quota to which pods belong that no declared quota has, and the reason.

        A quota that was valid before stays in force as it was, and is not meant.
        """
        declared_quotas, rejected = self.projection.lookup.quotas, self.projection.rejected
        if label:
            return (label, rejected[label]) if label in rejected and label not in declared_quotas else None
        if self._rejected_namespaces is None or self._rejected_namespaces[0] != self.structure_changes:
            self._rejected_namespaces = self.structure_changes, dict(self._rejections_by_namespace())
        return self._rejected_namespaces[1].get(namespace)

    def _rejections_by_namespace(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yields the namespaces of rejected quotas; where several name one, the last counts."""
        projection = self.projection
        for name, duplicates in sorted(projection.duplicates.items(), reverse=True):
            for key, reason in sorted(duplicates.items(), reverse=True):
                for namespace in self._namespaces_at(key):
                    yield namespace, (name, reason)
        for name in sorted(projection.rejected, reverse=True):
            if name not in projection.lookup.quotas:
                for namespace in self._namespaces_at(self.owner(name)):
                    yield namespace, (name, projection.rejected[name])

    def _namespaces_at(self, key: str) -> tuple[str, ...]:
        error, quota = self.object_errors.get(key), self.objects.get(key)
        return error.namespaces if error is not None else namespaces_of(quota) if quota is not None else ()

    def _age(self, key: str) -> tuple[int, str, str]:
        return self.quota_objects[key].created_ns, key.partition("/")[2], key

    def object_key(self, name: str) -> tuple[str, str]:
        """Returns `resource/namespace/name` of a quota's object, and its uid; empty texts where there is none."""
        key = self.owner(name)
        return (key, self.quota_objects[key].uid) if key in self.objects else ("", "")

    def _node_changed(self, name: str, node: Node | None) -> None:
        self._node_total = None
        if node is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = _readable(node.status.allocatable)

    def _object_observed(self, key: str, raw: dict[str, Any]) -> None:
        self.structure_changes += 1
        metadata = raw["metadata"]
        name = metadata["name"]
        self.quota_objects[key] = QuotaObject(name, str(metadata.get("uid", "")), created_ns(metadata))
        self._keys_of.setdefault(name, {})[key] = None
        self._numbers(key, name, numbers_on(raw))
        before, error = self.objects.get(key), None
        try:
            after = _bounded(declared(raw))
            if after != before:
                check_self(raw, after)
        except BadQuantity as problem:
            error = ObjectError(name, "unreadable", unreadable_amounts(raw, problem), _namespaces_on(raw))
        except AdmissionRejected as problem:
            reason = ALSO.join((str(problem), *after.ignored))
            error = ObjectError(name, problem.code, reason, _namespaces_on(raw))
        if error is not None:
            self.object_errors[key] = error  # `objects` keeps the last valid declaration
            self._check_quota(name)
            return
        self.object_errors.pop(key, None)
        self.objects[key] = after
        self._check_quota(name)

    def _numbers(self, key: str, name: str, present: tuple[str, ...]) -> None:
        if present:
            self.present_numbers[key] = present
            self.published.note_present(key, name, present)
        else:
            self.present_numbers.pop(key, None)

    def _object_deleted(self, key: str) -> None:
        self.structure_changes += 1
        self.present_numbers.pop(key, None)
        self.object_errors.pop(key, None)
        self.objects.pop(key, None)
        if (gone := self.quota_objects.pop(key, None)) is not None:
            del self._keys_of[gone.name][key]
            self._check_quota(gone.name)

    def _check_quota(self, name: str) -> None:
        projection, error = self.projection, self.error_of(name)
        is_current = (
            projection.lookup.quotas.get(name) == self.object_of(name)
            and projection.rejected.get(name, "") == (error.reason if error else "")
            and projection.duplicates.get(name, {}) == self.duplicates_of(name)
        )
        if is_current:
            self.quotas_to_update.pop(name, None)
        else:
            self.quotas_to_update[name] = None


def created_ns(metadata: Mapping[str, Any]) -> int:
    """Returns the creation of an object, in nanoseconds since the epoch; 0 where it does not have it."""
    try:
        return instant_ns(str(metadata.get("creationTimestamp", "")))
    except BadTime:
        return 0


def described(key: str) -> str:
    """Returns an object of a key in words: `ElasticQuota namespace/name`, with the group where it is not the usual one."""
    resource, _, name = key.partition("/")
    return f"ElasticQuota {name}" + (f" of {resource.partition('.')[2]}" if resource != RESOURCES[0] else "")


def namespaces_of(quota: DeclaredQuota) -> tuple[str, ...]:
    """Returns the namespaces whose pods may belong to a quota without a label.

    These are the ones bound to it, and its own if the quota has the namespace's name.
    """
    return (quota.namespace, *quota.namespaces) if quota.name == quota.namespace else quota.namespaces


def _namespaces_on(raw: dict[str, Any]) -> tuple[str, ...]:
    """Returns the namespaces of a quota whose amounts cannot be read."""
    return namespaces_of(declared({**raw, "spec": {}}))


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
