"""What an ElasticQuotaProfile makes: the root quota of a tree, as large as the nodes that it selects.

Source: spec/quota.md 5.6; upstream pkg/quota-controller/profile/profile_controller.go.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.quota_ledger.decide.quota_status import texts
from services.quota_ledger.state.ledger_state import LedgerState
from services.quota_ledger.state.profile_resources import RESOURCE, NodeTotals, Profile, is_labelled, tree_of
from shared.domain.amounts import Amounts
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.elastic_quota import PREFIX, RESOURCES
from shared.kube.instants import SECOND

QUOTAS = RESOURCES[0]
TREE = "quota-tree"
"""The field group of a profile that the ledger writes."""

UNBOUNDED = str((2**63 - 1) // 2000)
"""Max of every resource of a profile's quota: in cores, bytes or devices."""

DEFAULT_KEYS = ("cpu", "memory")

INTERVAL_S = 1.0
"""A quota follows its nodes at most so often."""

AGAIN_S = 10.0
"""A quota that is not there although it was written is written again after so long."""


def made_by_profiles(state: LedgerState, now_ns: int, *, interval_s: float = INTERVAL_S) -> list[Draft]:
    """The next levels of profiles and their quotas: where they are to be others than they were told.

    To be asked now and then. A profile that cannot be read makes nothing; `state.profiles.problems` says why. One that is deleted
    leaves its quota.
    """
    drafts: list[Draft] = []
    view, told = state.profiles, state.published.told
    lost = [key for key, profile in view.profiles.items() if _is_lost(state, profile, now_ns)]
    for key in [*view.changed, *(key for key in lost if key not in view.changed)]:
        profile = view.profiles[key]
        uid, labelled = profile.metadata.uid, told.get(f"{RESOURCE}/{key}")
        if not is_labelled(profile) and (labelled is None or labelled.uid != uid):
            patch = {"metadata": {"labels": {PREFIX + "tree-id": tree_of(profile)}}}
            drafts.append(Draft(FieldsDesired(resource=RESOURCE, name=key, fields=TREE, patch=patch, uid=uid)))
        name = f"{profile.metadata.namespace}/{profile.spec.quota_name}"
        body, before = body_of(profile, view.sums[key]), told.get(f"{QUOTAS}/{name}#")
        if before is not None and before.patch == body and key not in lost:
            view.changed.pop(key, None)
        elif before is None or now_ns - before.at_ns >= interval_s * SECOND:
            drafts.append(Draft(ObjectDesired(resource=QUOTAS, name=name, body=body)))
    return drafts


def body_of(profile: Profile, sums: NodeTotals) -> dict[str, Any]:
    """The quota that a profile makes: min as large as its nodes in the resources it is about, max as good as none."""
    total, unusable = (scaled(each, profile.spec.resource_ratio) for each in (sums.total, sums.unusable))
    labels = {
        PREFIX + "profile": profile.metadata.name,
        **(profile.spec.quota_labels or {}),
        PREFIX + "tree-id": tree_of(profile),
        PREFIX + "is-root": "true",
    }
    annotations = {
        PREFIX + "total-resource": _json(texts(total, total)),
        PREFIX + "unschedulable-resource": _json(texts(unusable, unusable)),
    }
    keys = keys_of(profile)
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"min": texts({key: total.get(key, 0) for key in keys}, keys), "max": dict.fromkeys(keys, UNBOUNDED)},
    }


def scaled(one: Amounts, ratio: str | None) -> Amounts:
    """Each amount times the ratio, cut off, in double precision as upstream has it; a ratio outside (0, 1] is none."""
    try:
        factor = float(ratio or "1")
    except ValueError:
        return one
    return {name: int(float(size) * factor) for name, size in one.items()} if 0 < factor < 1 else one


def keys_of(profile: Profile) -> tuple[str, ...]:
    """The resources that a profile is about, sorted: an annotation, else cpu and memory."""
    text = (profile.metadata.annotations or {}).get(PREFIX + "resource-keys", "")
    try:
        found = msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.MsgspecError:
        found = ()
    return tuple(sorted(set(found))) or DEFAULT_KEYS


def _is_lost(state: LedgerState, profile: Profile, now_ns: int) -> bool:
    place = f"{QUOTAS}/{profile.metadata.namespace}/{profile.spec.quota_name}"
    told = state.published.told.get(place + "#")
    return told is not None and place not in state.objects and now_ns - told.at_ns >= AGAIN_S * SECOND


def _json(quantities: Mapping[str, str]) -> str:
    return msgspec.json.encode(quantities).decode()
