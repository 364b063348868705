"""The runtimes after a change of minima, maxima or weights, computed on a copy."""

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.accounting.snapshot_schema import ProjectionSnapshot, restore_into, snapshot_of
from services.quota_ledger.explain.explain_runtime import tree_of
from shared.admission.quota.quota_validation import check_min_within_max, check_not_negative


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
