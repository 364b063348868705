"""The numbers written to quota objects: annotations and `status.used`, as upstream's controller writes them.

They are written on change only, to each object at most once in INTERVAL_S. A number that is zero is written only where
the object has another one, from the ledger or from others: the webhook raises `child-request` for each pod that it
admits, even if the pod is never created, and upstream's scheduler may have left its numbers.

Source: spec/quota.md 6.6, 7.6; upstream pkg/scheduler/plugins/elasticquota/controller.go.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Any

import msgspec

from services.quota_ledger.state.ledger_state import LedgerState
from services.quota_ledger.state.published_status import NUMBERS, STATUS, USED, PublishedPatch
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import nonzero
from shared.events import Draft
from shared.events.intents import FieldsDesired
from shared.kube.elastic_quota import PREFIX, ROOT
from shared.kube.instants import SECOND
from shared.kube.quantity_text import amount_text

INTERVAL_S = 1.0
"""Time between two patches of one object, at least."""

MAX_OBJECTS = 25
"""Objects compared in one call, at most: a few milliseconds, which a charge that arrives meanwhile waits."""


def statuses(
    state: LedgerState, now_ns: int, *, interval_s: float = INTERVAL_S, max_objects: int = MAX_OBJECTS
) -> list[Draft]:
    """Returns the patches of objects whose numbers differ from their newest patch; those patched just now wait.

    Called at intervals, as overuse is.
    """
    drafts: list[Draft] = []
    changed = state.published.changed
    compared = 0
    for name in list(changed):
        if compared == max_objects:
            break
        key, uid = state.object_key(name)
        tree = state.projection.trees[state.projection.tree_of.get(name, "")]
        info = tree.quotas.get(name)
        if not key or info is None:
            del changed[name]
            continue
        published = state.published.patches.get(key)
        if published is not None and published.uid != uid:
            published = None  # the object was created again, without our numbers
        if published is not None and now_ns - published.at_ns < interval_s * SECOND:
            continue
        compared += 1
        patch = patch_of(tree, info, published, state.present_numbers.get(key, ()))
        if patch == (published.patch if published else {}):
            del changed[name]  # up to date, until another event changes its numbers
        else:
            resource, _, object_name = key.partition("/")
            fields = FieldsDesired(resource=resource, name=object_name, fields=STATUS, patch=patch, uid=uid)
            drafts.append(Draft(fields))
    return drafts


def patch_of(
    tree: QuotaTree, info: QuotaInfo, published: PublishedPatch | None, present: Container[str] = ()
) -> dict[str, Any]:
    """Returns an object's numbers as a merge patch; empty when all are zero and none has to be reset.

    Args:
        present: the numbers that the object has already, also from other writers.
    """
    before = published.patch if published else {}
    known = before.get("metadata", {}).get("annotations", {})
    resources = info.declared.max.keys()
    annotations = {
        PREFIX + suffix: _json(texts(amounts, resources))
        for suffix, amounts in numbers(tree, info)
        if nonzero(amounts) or PREFIX + suffix in known or suffix in present
    }
    patch: dict[str, Any] = {"metadata": {"annotations": annotations}} if annotations else {}
    used_before = before.get("status", {}).get("used", {})
    if nonzero(info.used) or used_before or USED in present:
        # A merge patch removes nothing: a resource that is no longer used is written as zero.
        patch["status"] = {"used": texts(info.used, {*resources, *used_before})}
    return patch


def numbers(tree: QuotaTree, info: QuotaInfo) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yields the suffix of each annotation, and its amounts."""
    runtime = tree.capacity if info.name == ROOT else info.runtime
    yield from zip(
        NUMBERS,
        (
            runtime,
            info.request,
            info.child_request,
            info.guaranteed,
            info.allocated,
            info.np_request,
            info.np_used,
        ),
        strict=True,
    )


def texts(amounts: Mapping[str, int], resources: Any) -> dict[str, str]:
    """Returns amounts as quantities, names sorted, with zeros for these resources."""
    names = {*resources, *nonzero(amounts)}
    return {name: amount_text(name, amounts.get(name, 0)) for name in sorted(names)}


def _json(quantities: Mapping[str, str]) -> str:
    return msgspec.json.encode(quantities).decode()
