"""What the objects of quotas are told of their numbers: annotations and `status.used`, as upstream's controller writes them.

On change only, each object at most once in a while, so many at a time. A number that is zero everywhere is told only where it was
something else before, by us or by others: the webhook raises `child-request` for each pod that it lets in, also for those that never
come to be, and upstream's scheduler may have left its numbers.

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
"""An object is told of changes at most so often."""

MOST = 500
"""Objects that one append tells."""


def statuses(state: LedgerState, now_ns: int, *, interval_s: float = INTERVAL_S, most: int = MOST) -> list[Draft]:
    """The next levels of objects whose numbers are others than what they were told; those told just now wait.

    To be asked now and then, as over-use is.
    """
    drafts: list[Draft] = []
    due = state.published.due
    for name in list(due):
        if len(drafts) == most:
            break
        place, uid = state.place_of(name)
        tree = state.projection.trees[state.projection.tree_of.get(name, "")]
        info = tree.quotas.get(name)
        if not place or info is None:
            del due[name]
            continue
        told = state.published.told.get(place)
        if told is not None and told.uid != uid:
            told = None  # made anew: it knows nothing
        patch = patch_of(tree, info, told, state.says.get(place, ()))
        if patch == (told.patch if told else {}):
            del due[name]  # as it should be, until an event is about it again
        elif told is None or now_ns - told.at_ns >= interval_s * SECOND:
            resource, _, key = place.partition("/")
            drafts.append(Draft(FieldsDesired(resource=resource, name=key, fields=STATUS, patch=patch, uid=uid)))
    return drafts


def patch_of(
    tree: QuotaTree, info: QuotaInfo, told: PublishedPatch | None, says: Container[str] = ()
) -> dict[str, Any]:
    """What an object is to say, as a merge patch; empty when there is nothing to say and nothing to take back.

    Args:
        says: which numbers it has already, whoever wrote them.
    """
    before = told.patch if told else {}
    known = before.get("metadata", {}).get("annotations", {})
    resources = info.declared.max.keys()
    annotations = {
        PREFIX + suffix: _json(texts(amounts, resources))
        for suffix, amounts in numbers(tree, info)
        if nonzero(amounts) or PREFIX + suffix in known or suffix in says
    }
    patch: dict[str, Any] = {"metadata": {"annotations": annotations}} if annotations else {}
    used_before = before.get("status", {}).get("used", {})
    if nonzero(info.used) or used_before or USED in says:
        # A merge patch takes nothing away: what is no longer used is told as zero.
        patch["status"] = {"used": texts(info.used, {*resources, *used_before})}
    return patch


def numbers(tree: QuotaTree, info: QuotaInfo) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Suffix of an annotation, and its amounts."""
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
    """Quantities, names sorted; zeros of these resources included."""
    names = {*resources, *nonzero(amounts)}
    return {name: amount_text(name, amounts.get(name, 0)) for name in sorted(names)}


def _json(quantities: Mapping[str, str]) -> str:
    return msgspec.json.encode(quantities).decode()
