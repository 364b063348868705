"""Validation of an ElasticQuota at its creation, change and deletion, and defaults at its creation.

Pure functions of the object and of the existing quotas. The gateway calls them in its webhook; where that is not
installed, the quota ledger calls them for observed objects and keeps the last valid declaration.

Source: spec/quota.md 5.1, 5.2; spec/api.md 5.7; upstream pkg/webhook/elasticquota.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from shared.admission.quota.quota_topology import Topology, check_cycle, checked_place
from shared.admission.rejection import ALSO, AdmissionRejected, reject_together
from shared.closest_name import did_you_mean
from shared.domain.amounts import exceeding
from shared.kube.elastic_quota import (
    DEFAULT,
    PREFIX,
    ROOT,
    SYSTEM,
    BadResourceList,
    DeclaredQuota,
    declared,
    resource_list,
)
from shared.kube.json_text import read_json
from shared.kube.quantity import BadQuantity, amounts
from shared.kube.quantity_text import amount_text
from shared.kube.quota_resources import COMMON

Raw = Mapping[str, Any]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The feature gates that the rules depend on.

    Attributes:
        guarantees: ElasticQuotaGuaranteeUsage.
        keys_may_differ: ElasticQuotaEnableUpdateResourceKey: a child may have fewer resources than its parent.
        parents_may_cycle: as upstream: a quota may be its own ancestor where minima allow it; see docs/compat.md.
    """

    guarantees: bool = False
    keys_may_differ: bool = False
    parents_may_cycle: bool = False


class PodsOf(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of the cluster, as far as the rules about quotas depend on them.

    Attributes:
        labelled: quota -> keys of pods that name it.
        namespaces: namespaces that have pods.
    """

    labelled: Mapping[str, Sequence[str]] = {}
    namespaces: frozenset[str] = frozenset()


def completed(topology: Topology, raw: Raw) -> dict[str, Any]:
    """Adds the defaults of a new quota's object: parent, tree, shared weight.

    Raises:
        AdmissionRejected: `parentMissing`, `sharedWeightParse`.
    """
    metadata = dict(raw["metadata"])
    if metadata["name"] == ROOT:
        return dict(raw)
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    labels[PREFIX + "parent"] = parent = labels.get(PREFIX + "parent") or ROOT
    if not labels.get(PREFIX + "tree-id") and parent != ROOT:
        if (above := topology.quotas.get(parent)) is None:
            raise AdmissionRejected(
                "parentMissing", f"quota {metadata['name']}: its parent {parent} does not exist; create that first"
            )
        if above.tree:
            labels[PREFIX + "tree-id"] = above.tree
    limit = {name: str(size) for name, size in ((raw.get("spec") or {}).get("max") or {}).items()}
    weight = annotations.get(PREFIX + "shared-weight")
    weights = _weight(metadata, "sharedWeightParse") if weight else None
    if weights is None:
        annotations[PREFIX + "shared-weight"] = _json(limit)
    elif weights.keys() != limit.keys():
        texts = {name: str(size) for name, size in read_json(weight or "").items()}
        annotations[PREFIX + "shared-weight"] = _json({name: texts.get(name, size) for name, size in limit.items()})
    return {**raw, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def check_create(topology: Topology, raw: Raw, rules: Rules) -> DeclaredQuota:
    """Validates a new quota with its defaults.

    Raises:
        AdmissionRejected: the violated rules.
    """
    quota = read(raw)
    if quota.name in topology.quotas:
        raise AdmissionRejected("exists", f"quota {quota.name} exists already; names are unique over all namespaces")
    _check_all(topology, raw, quota, None, rules, PodsOf())
    return quota


def check_update(topology: Topology, old: Raw, raw: Raw, pods: PodsOf, rules: Rules) -> DeclaredQuota:
    """Validates a changed quota. Only its place, its namespaces and its spec are checked.

    Raises:
        AdmissionRejected: the violated rules.
    """
    if _compared(old) == _compared(raw):
        return read(raw)
    name = raw["metadata"]["name"]
    if name in (SYSTEM, ROOT):
        raise AdmissionRejected("immutable", f"quota {name} belongs to the system and cannot be changed")
    quota = read(raw)
    before = topology.quotas.get(name)
    if before is None:
        check_namespaces(topology, quota)
        raise AdmissionRejected("unknown", f"quota {name} is not known")
    _check_all(topology, raw, quota, before, rules, pods)
    return quota


def _check_all(
    topology: Topology,
    raw: Raw,
    quota: DeclaredQuota,
    before: DeclaredQuota | None,
    rules: Rules,
    pods: PodsOf,
) -> None:
    checks = [
        lambda: check_namespaces(topology, quota),
        lambda: check_self(raw, quota),
        lambda: _check_kind(topology, before, quota, pods) if before is not None else None,
        lambda: checked_place(topology, quota, before, rules.guarantees, rules.keys_may_differ, raw),
    ]
    if not rules.parents_may_cycle:
        checks.append(lambda: check_cycle(topology.quotas, quota))
    reject_together(prefix(quota.name), checks, quota.ignored)


def prefix(quota: str) -> str:
    """Returns the words with which each rejection of a quota begins."""
    return f"quota {quota}: "


def check_delete(topology: Topology, name: str, pods: PodsOf) -> None:
    """Validates the deletion of a quota.

    Raises:
        AdmissionRejected: `protected`, `unknown`, `hasChildren`, `hasPods`.
    """
    if name in (SYSTEM, ROOT, DEFAULT):
        raise AdmissionRejected("protected", f"quota {name} belongs to the system and cannot be deleted")
    if name not in topology.quotas:
        raise AdmissionRejected("unknown", f"quota {name} is not known")
    if children := sorted(topology.children.get(name, ())):
        raise AdmissionRejected(
            "hasChildren", f"quota {name} has the children {', '.join(children)}; delete or move them first"
        )
    if held := sorted(pods.labelled.get(name, ())):
        named = ", ".join(held[:2]) + (", ..." if len(held) > 2 else "")
        raise AdmissionRejected(
            "hasPods", f"quota {name} has the pods {named}; delete them or change their label first"
        )


def read(raw: Raw) -> DeclaredQuota:
    """Reads the declaration of an object.

    Raises:
        AdmissionRejected: `negative`, where min or max is no quantity.
    """
    try:
        return declared(raw)
    except BadQuantity as error:
        raise AdmissionRejected("negative", unreadable_amounts(raw, error)) from error


def unreadable_amounts(raw: Raw, error: BadQuantity) -> str:
    """Returns the faults of an object whose min or max cannot be read.

    Args:
        error: of the first one; for a spec without the usual form its only description.
    """
    spec = raw.get("spec")
    texts, given, unreadable = list[str](), dict[str, dict[str, str]](), set[str]()
    for field in ("min", "max"):
        quantities = spec.get(field) if isinstance(spec, Mapping) else None
        pairs = quantities.items() if isinstance(quantities, Mapping) else ()
        given[field] = {str(name): str(size) for name, size in pairs}
        for name, size in given[field].items():
            try:
                if amounts({name: size})[name] < 0:
                    texts.append(f"{field} of {name} is negative")
            except BadQuantity as bad:
                unreadable.add(name)
                texts.append(f"{field} of {name}: {bad}")
    own = prefix(raw["metadata"]["name"])
    if unreadable:
        texts += _min_above_max(raw, given, unreadable, own)
    beside = declared({**raw, "spec": {}}).ignored
    return own + ALSO.join((*(texts or [str(error)]), *beside))


def _min_above_max(
    raw: Raw, given: Mapping[str, Mapping[str, str]], unreadable: Collection[str], own: str
) -> list[str]:
    """Returns the faults of min against max in the resources that can be read in both."""
    spec = {field: {n: size for n, size in sizes.items() if n not in unreadable} for field, sizes in given.items()}
    try:
        check_min_within_max(declared({**raw, "spec": spec}))
    except AdmissionRejected as fault:
        return [str(fault).removeprefix(own)]
    return []


def check_self(raw: Raw, quota: DeclaredQuota) -> None:
    """Validates a quota by itself, without the others.

    Raises:
        AdmissionRejected: `negative`, `sharedWeightParse`, `minMax`, `strictParse`, `strictMissing`, `strictBelowUsed`.
    """

    def check_weight() -> None:
        check_not_negative("the shared weight", quota, _weight(raw["metadata"], "sharedWeightParse") or {})

    checks = [
        lambda: check_not_negative("max", quota, quota.max),
        lambda: check_not_negative("min", quota, quota.min),
        check_weight,
        lambda: check_min_within_max(quota),
        lambda: _check_strict(raw, quota),
    ]
    reject_together(prefix(quota.name), checks)


def check_not_negative(field: str, quota: DeclaredQuota, sizes: Mapping[str, int]) -> None:
    """Checks the amounts of one field.

    Raises:
        AdmissionRejected: `negative`.
    """
    if below := sorted(name for name, size in sizes.items() if size < 0):
        verb = "is" if len(below) == 1 else "are"
        raise AdmissionRejected("negative", f"quota {quota.name}: {field} of {', '.join(below)} {verb} negative")


def check_min_within_max(quota: DeclaredQuota) -> None:
    """Checks that max has every resource of min, with as much at least.

    Raises:
        AdmissionRejected: `minMax`.
    """
    texts = []
    for name, size in sorted(quota.min.items()):
        if name not in quota.max:
            meant = did_you_mean(name, sorted({*quota.max, *COMMON} - {name}))
            texts.append(f"min has {name}, and max does not; add it to max, or correct its name{meant}")
        elif size > quota.max[name]:
            texts.append(f"min of {name} is above its max; raise max or lower min")
    if texts:
        raise AdmissionRejected("minMax", prefix(quota.name) + ALSO.join(texts))


def _check_strict(raw: Raw, quota: DeclaredQuota) -> None:
    text = (raw["metadata"].get("annotations") or {}).get(PREFIX + "max-strict-check-resource-keys")
    if not text:
        return
    try:
        strict = read_json(text, list[str])
    except msgspec.MsgspecError as error:
        message = f"quota {quota.name}: max-strict-check-resource-keys is {text!r}; give a JSON list of resources"
        raise AdmissionRejected("strictParse", message) from error
    used = amounts({name: str(size) for name, size in ((raw.get("status") or {}).get("used") or {}).items()})
    for name in strict:
        if name not in used:
            continue
        if name not in quota.max:
            raise AdmissionRejected(
                "strictMissing",
                f"quota {quota.name}: max lacks {name}, of which {amount_text(name, used[name])} is used",
            )
        if exceeding({name: used[name]}, quota.max):
            limit, held = (amount_text(name, amounts_of[name]) for amounts_of in (quota.max, used))
            message = f"quota {quota.name}: max of {name} is {limit}, below the {held} that is used"
            raise AdmissionRejected("strictBelowUsed", message)


def check_namespaces(topology: Topology, quota: DeclaredQuota) -> None:
    """Checks that the namespaces of a quota are not bound to another one.

    Raises:
        AdmissionRejected: `namespaceBound`.
    """
    for namespace in quota.namespaces:
        if (other := topology.namespaces.get(namespace, quota.name)) != quota.name:
            raise AdmissionRejected(
                "namespaceBound", f"quota {quota.name}: namespace {namespace} is bound to quota {other}"
            )


def _check_kind(topology: Topology, before: DeclaredQuota, quota: DeclaredQuota, pods: PodsOf) -> None:
    if before.is_parent and not quota.is_parent and topology.children.get(quota.name):
        raise AdmissionRejected("hasChildren", f"quota {quota.name} has children and must stay a parent")
    if not before.is_parent and quota.is_parent:
        bound = {quota.name, *before.namespaces} & pods.namespaces
        if pods.labelled.get(quota.name) or bound:
            raise AdmissionRejected("hasPods", f"quota {quota.name} has pods and cannot become a parent")


def _weight(metadata: Mapping[str, Any], code: str) -> dict[str, int] | None:
    try:
        return resource_list(metadata, "shared-weight")
    except BadResourceList as error:
        raise AdmissionRejected(code, f"quota {metadata['name']}: {error}") from error


def _compared(raw: Raw) -> tuple[object, ...]:
    metadata = raw["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    placed = tuple(labels.get(PREFIX + suffix, "") for suffix in ("parent", "is-parent", "tree-id"))
    return (*placed, annotations.get(PREFIX + "namespaces", ""), raw.get("spec"))


def _json(texts: Mapping[str, str]) -> str:
    return msgspec.json.encode(dict(sorted(texts.items()))).decode()
