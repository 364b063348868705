"""The runtimes after a change of minima, maxima or weights, computed on a copy."""

from collections.abc import Collection, Container, Mapping
from typing import Any

import msgspec

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.accounting.snapshot_schema import ProjectionSnapshot, restore_into, snapshot_of
from services.quota_ledger.explain.explain_runtime import tree_of
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.admission.quota.quota_validation import check_min_within_max, check_not_negative
from shared.closest_name import did_you_mean
from shared.errors import KoordError


class UnknownResource(KoordError):
    """A quota is to have an amount of a resource that its tree does not have."""

    def __init__(self, quota: str, resource: str, there: Collection[str]) -> None:
        known = f"the quotas of its tree have {', '.join(sorted(there))}"
        super().__init__(f"quota {quota} has no resource {resource!r}{did_you_mean(resource, there)}; {known}")


def changed_runtimes(
    projection: LedgerProjection,
    changes: Mapping[str, Mapping[str, Mapping[str, int]]],
    weigh_their_max: Container[str] = (),
) -> dict[str, Any]:
    """Returns the runtimes that would change.

    Args:
        changes: quota -> `min`, `max` or `weight` -> resource -> amount.
        weigh_their_max: quotas without a weight of their own: a new max is their new weight, too.

    Returns:
        quota -> resource -> [runtime now, runtime then], where they differ.

    Raises:
        UnknownQuota: no quota has one of the names.
        UnknownResource: no quota of the tree and not its total has one of the resources.
        AdmissionRejected: a quota with these amounts would be rejected.
    """
    other = projection.empty()
    encoded = msgspec.msgpack.encode(snapshot_of(projection))
    restore_into(other, msgspec.msgpack.decode(encoded, type=ProjectionSnapshot))
    for quota, fields in changes.items():
        _, tree = tree_of(other, quota)
        declared = tree.quotas[quota].declared
        # A weight that follows from the max comes last: a fault of both is one of the field that was given.
        others = {**fields, "weight": fields.get("max", {}), **fields} if quota in weigh_their_max else fields
        _check_resources(tree, quota, fields)
        updated = {field: {**getattr(declared, field), **amounts} for field, amounts in others.items()}
        after = msgspec.structs.replace(declared, **updated)
        for field in updated:
            check_not_negative(field, after, getattr(after, field))
        check_min_within_max(after)
        tree.update_quota(after)
    for tree in other.trees.values():
        tree.refresh_runtimes()
    changed: dict[str, Any] = {}
    for name, tree in projection.trees.items():
        for info in tree.quotas.values():
            then = other.trees[name].quotas[info.name].runtime
            for resource in sorted(info.runtime.keys() | then.keys()):
                pair = [info.runtime.get(resource, 0), then.get(resource, 0)]
                if pair[0] != pair[1]:
                    changed.setdefault(info.name, {})[resource] = pair
    return changed


def _check_resources(tree: QuotaTree, quota: str, fields: Mapping[str, Mapping[str, int]]) -> None:
    """Checks that a quota of the tree, or its total, has each resource.

    Raises:
        UnknownResource: none has.
    """
    declared = [each.declared for each in tree.quotas.values()]
    there = {*tree.total, *(resource for each in declared for field in (each.max, each.min) for resource in field)}
    for amounts in fields.values():
        for resource in amounts:
            if resource not in there:
                raise UnknownResource(quota, resource, there)
