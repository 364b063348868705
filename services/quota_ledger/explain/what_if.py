"""What other minima, maxima or weights would change."""

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from services.quota_ledger.accounting.projection import LedgerProjection
from services.quota_ledger.accounting.snapshot_schema import ProjectionSnapshot, image_of, restored
from services.quota_ledger.explain.explain_runtime import tree_of


def whatif(
    projection: LedgerProjection,
    changes: Mapping[str, Mapping[str, Mapping[str, int]]],
    weigh_their_max: Container[str] = (),
) -> dict[str, Any]:
    """Whose runtime would be another; the books stay as they are.

    Args:
        changes: quota -> `min`, `max` or `weight` -> resource -> amount.
        weigh_their_max: quotas for which another max is another weight, too.

    Returns:
        quota -> resource -> [runtime now, runtime then], where they differ.

    Raises:
        UnknownQuota: a quota of that name is not there.
    """
    other = projection.empty()
    encoded = msgspec.msgpack.encode(image_of(projection))
    restored(other, msgspec.msgpack.decode(encoded, type=ProjectionSnapshot))
    for quota, fields in changes.items():
        _, tree = tree_of(other, quota)
        declared = tree.quotas[quota].declared
        others = {"weight": fields.get("max", {}), **fields} if quota in weigh_their_max else fields
        amended = {field: {**getattr(declared, field), **amounts} for field, amounts in others.items()}
        tree.update_quota(msgspec.structs.replace(declared, **amended))
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
