"""The root quota of a tree that an ElasticQuotaProfile creates, as large as the nodes that it selects.

Source: spec/quota.md 5.6; upstream pkg/quota-controller/profile/profile_controller.go.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.quota_ledger.decide.quota_status import texts
from services.quota_ledger.state.ledger_state import LedgerState
from services.quota_ledger.state.profile_resources import RESOURCE, NodeTotals, Profile, is_labelled, tree_of
from services.quota_ledger.state.published_status import CREATED, RELEASED
from shared.domain.amounts import Amounts
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.elastic_quota import PREFIX, RESOURCES
from shared.kube.instants import SECOND
from shared.kube.json_text import read_json

QUOTAS = RESOURCES[0]
TREE = "quota-tree"
"""The field group of a profile that the ledger writes."""

UNBOUNDED = str((2**63 - 1) // 2000)
"""Max of every resource of a profile's quota: in cores, bytes or devices."""

DEFAULT_KEYS = ("cpu", "memory")

INTERVAL_S = 1.0
"""Time between two changes of one quota, at least."""

RECREATE_AFTER_S = 10.0
"""Age of a creation after which a quota that is still missing is created again."""


def profile_quotas(state: LedgerState, now_ns: int, *, interval_s: float = INTERVAL_S) -> list[Draft]:
    """Returns the desired labels of profiles and their desired quotas, where they differ from the published ones.

    Called at intervals. An unreadable profile creates nothing; `state.profiles.problems` has the reason. The quota of
    a deleted profile stays, and is its users' from then on, as upstream has it.
    """
    drafts: list[Draft] = []
    view, patches = state.profiles, state.published.patches
    lost = [key for key, profile in view.profiles.items() if _is_lost(state, profile, now_ns)]
    for key in [*view.changed, *(key for key in lost if key not in view.changed)]:
        profile = view.profiles[key]
        uid, labelled = profile.metadata.uid, patches.get(f"{RESOURCE}/{key}")
        if not is_labelled(profile) and (labelled is None or labelled.uid != uid):
            patch = {"metadata": {"labels": {PREFIX + "tree-id": tree_of(profile)}}}
            drafts.append(Draft(FieldsDesired(resource=RESOURCE, name=key, fields=TREE, patch=patch, uid=uid)))
        name = f"{profile.metadata.namespace}/{profile.spec.quota_name}"
        body, before = body_of(profile, view.sums[key]), patches.get(f"{QUOTAS}/{name}{CREATED}")
        if before is not None and before.patch == body and key not in lost:
            view.changed.pop(key, None)
        elif before is None or now_ns - before.at_ns >= interval_s * SECOND:
            drafts.append(Draft(ObjectDesired(resource=QUOTAS, name=name, body=body)))
    return [*drafts, *_released(state)]


def _released(state: LedgerState) -> list[Draft]:
    """Returns the end of the desired state of quotas that no profile names any more; the objects stay as they are.

    An empty patch of the object's own field group replaces its body: from then on no field of it is written again.
    """
    view = state.profiles
    named = {f"{profile.metadata.namespace}/{profile.spec.quota_name}" for profile in view.profiles.values()}
    # A profile that cannot be read names a quota of its namespace, too.
    unreadable = {key.partition("/")[0] for key in view.problems}
    drafts = []
    for key in state.published.patches:
        quota = key.removesuffix(CREATED)
        name = quota.removeprefix(f"{QUOTAS}/")
        if key == quota or name in named or quota not in state.objects or name.partition("/")[0] in unreadable:
            continue
        drafts.append(Draft(FieldsDesired(resource=QUOTAS, name=name, fields=RELEASED, patch={})))
    return drafts


def body_of(profile: Profile, sums: NodeTotals) -> dict[str, Any]:
    """Returns a profile's quota: min as large as its nodes in the profile's resources, max practically unbounded."""
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
    """Returns each amount times the ratio, truncated, in double precision as upstream; only for a ratio in (0, 1]."""
    try:
        factor = float(ratio or "1")
    except ValueError:
        return one
    return {name: int(float(size) * factor) for name, size in one.items()} if 0 < factor < 1 else one


def keys_of(profile: Profile) -> tuple[str, ...]:
    """Returns the resources of a profile, sorted: its annotation, else cpu and memory."""
    text = (profile.metadata.annotations or {}).get(PREFIX + "resource-keys", "")
    try:
        found = read_json(text, tuple[str, ...])
    except msgspec.MsgspecError:
        found = ()
    return tuple(sorted(set(found))) or DEFAULT_KEYS


def _is_lost(state: LedgerState, profile: Profile, now_ns: int) -> bool:
    key = f"{QUOTAS}/{profile.metadata.namespace}/{profile.spec.quota_name}"
    created = state.published.patches.get(key + CREATED)
    return created is not None and key not in state.objects and now_ns - created.at_ns >= RECREATE_AFTER_S * SECOND


def _json(quantities: Mapping[str, str]) -> str:
    return msgspec.json.encode(quantities).decode()
