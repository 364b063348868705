"""The declaration of an ElasticQuota object of either API group, with its labels and annotations.

Source: spec/quota.md 1.1, 1.2; upstream apis/extension/elastic_quota.go.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from shared.errors import KoordError
from shared.kube import resource_names
from shared.kube.json_text import read_json
from shared.kube.quantity import BadQuantity, amounts

PREFIX = "quota.scheduling.koordinator.sh/"
"""Prefix of every label and annotation about quota."""

ROOT = "koordinator-root-quota"
SYSTEM = "koordinator-system-quota"
DEFAULT = "koordinator-default-quota"
RESERVED = (SYSTEM, DEFAULT)
"""Quotas outside of the ordinary ones: their usage is subtracted from the capacity that the others share."""

RESOURCES = (resource_names.QUOTAS, resource_names.GUIDE_QUOTAS)
"""Resources of such objects: upstream's group, and the group of the published guides. Both have min and max."""

QUOTA_NAME = PREFIX + "name"
PREEMPTIBLE = PREFIX + "preemptible"

LABELS = (
    "is-parent", "parent", "allow-lent-resource", "tree-id", "is-root", "ignore-default-tree", "allow-force-update",
    "profile",
)  # fmt: skip
SWITCHES = {
    "is-parent": "false", "allow-lent-resource": "true", "is-root": "false", "ignore-default-tree": "false",
    "allow-force-update": "false",
}  # fmt: skip
"""Labels that are `true` or `false` -> how any other text counts. Source: spec/quota.md 1.2."""
ANNOTATIONS = (
    "shared-weight", "namespaces", "total-resource", "unschedulable-resource", "max-strict-check-resource-keys",
    "admission", "runtime", "request", "child-request", "guaranteed", "allocated", "non-preemptible-request",
    "non-preemptible-used",
)  # fmt: skip
"""Names behind the prefix that a label and an annotation of a quota may have."""

OF_OTHER_KINDS = {
    QUOTA_NAME.removeprefix(PREFIX): "pods",
    PREEMPTIBLE.removeprefix(PREFIX): "pods",
    "resource-keys": "an ElasticQuotaProfile",
}
"""Names behind the prefix that are read on another kind of object, and have no effect on a quota."""

_NAMED = 5
"""Labels and annotations without effect that are named, at most; the others are counted."""

RENAMED = {
    "koordinator.sh/batch-cpu": "kubernetes.io/batch-cpu",
    "koordinator.sh/batch-memory": "kubernetes.io/batch-memory",
}


class BadResourceList(KoordError):
    """An annotation that should hold a resource list as JSON does not."""

    def __init__(self, annotation: str, text: str) -> None:
        super().__init__(
            f'annotation {annotation} is {text!r}; give a JSON object of quantities, such as {{"cpu": "2", "memory": "4Gi"}}'
        )


class DeclaredQuota(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The declared fields of a quota.

    Attributes:
        name: identity over the whole cluster; `namespace` is only the object's.
        parent: name of the parent, the root's by default.
        max: upper bound; its names are the resources that are counted for the quota.
        weight: share in the remaining capacity; the annotation, or `max` without one.
        total: capacity of a whole tree, on its root quota; None when absent or unreadable.
        namespaces: pods in them belong to this quota without a label.
        uid: of the object; a quota that is created again under the same name has another uid.
        ignored: the labels and annotations that have no effect, as they are unknown or cannot be read, with what they
            should be.
    """

    name: str
    namespace: str = ""
    uid: str = ""
    parent: str = ROOT
    is_parent: bool = False
    lends: bool = True
    tree: str = ""
    is_root: bool = False
    ignores_default_tree: bool = False
    force_update: bool = False
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    weight: dict[str, int] = {}
    total: dict[str, int] | None = None
    namespaces: tuple[str, ...] = ()
    deleting: bool = False
    ignored: tuple[str, ...] = ()


def resource_list(metadata: Mapping[str, Any], suffix: str) -> dict[str, int] | None:
    """Reads the resource list of an annotation; None without one.

    Raises:
        BadResourceList: the annotation is no JSON object of quantities.
    """
    text = (metadata.get("annotations") or {}).get(PREFIX + suffix)
    if not text:
        return None
    try:
        read = read_json(text, dict[str, str | int | float])
        return amounts({name: str(size) for name, size in read.items()})
    except (msgspec.MsgspecError, BadQuantity) as error:
        raise BadResourceList(PREFIX + suffix, text) from error


def declared(raw: Mapping[str, Any]) -> DeclaredQuota:
    """Reads an object. A field that cannot be read counts as absent, as in the scheduler; the webhook rejects it.

    Raises:
        BadQuantity: min or max holds a text that is no quantity, or they or the spec are no objects.
    """
    metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    if not isinstance(spec, Mapping):
        raise BadQuantity(spec)
    labels = metadata.get("labels") or {}
    name = metadata.get("name", "")
    limit = spec_amounts(spec.get("max"))
    weight = None if weighs_its_max(raw) else _readable(metadata, "shared-weight")
    return DeclaredQuota(
        name=name,
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        parent=labels.get(PREFIX + "parent", "") or ("" if name == ROOT else ROOT),
        is_parent=labels.get(PREFIX + "is-parent") == "true",
        lends=labels.get(PREFIX + "allow-lent-resource") != "false",
        tree=labels.get(PREFIX + "tree-id", ""),
        is_root=labels.get(PREFIX + "is-root") == "true",
        ignores_default_tree=labels.get(PREFIX + "ignore-default-tree") == "true",
        force_update=labels.get(PREFIX + "allow-force-update") == "true",
        min=spec_amounts(spec.get("min")),
        max=limit,
        weight=weight or limit,
        total=_readable(metadata, "total-resource"),
        namespaces=namespaces_of(metadata),
        deleting=bool(metadata.get("deletionTimestamp")),
        ignored=(*unreadable_annotations(metadata), *unreadable_switches(metadata), *settings_without_effect(metadata)),
    )


def weighs_its_max(raw: Mapping[str, Any]) -> bool:
    """Reports whether an object has no weight of its own, so that a new max changes its weight."""
    return not any((_readable(raw.get("metadata") or {}, "shared-weight") or {}).values())


def spec_amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Reads `spec.min` or `spec.max`, with deprecated names renamed.

    Raises:
        BadQuantity: a text is no quantity, or the whole is no object.
    """
    if quantities and not isinstance(quantities, Mapping):
        raise BadQuantity(quantities)
    read = amounts({name: str(size) for name, size in (quantities or {}).items()})
    for old, new in RENAMED.items():
        if old in read:
            read[new] = read.pop(old)
    return read


def namespaces_of(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the namespaces bound to a quota; none when the annotation cannot be read."""
    return _bound_namespaces(metadata) or ()


def unreadable_annotations(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the annotations that cannot be read and that no rule rejects, each with what it should be."""
    found = []
    if _bound_namespaces(metadata) is None:
        name = PREFIX + "namespaces"
        found.append(
            f"annotation {name} is {metadata['annotations'][name]!r} and binds no namespace; "
            'give a JSON list of names, such as ["dev", "test"]'
        )
    try:
        resource_list(metadata, "total-resource")
    except BadResourceList as error:
        found.append(str(error))
    return tuple(found)


def unreadable_switches(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the labels that should be `true` or `false` and are neither, each with how it counts."""
    labels = metadata.get("labels") or {}
    return tuple(
        f"label {PREFIX}{name} is {labels[PREFIX + name]!r} and counts as {counts!r}; give 'true' or 'false'"
        for name, counts in SWITCHES.items()
        if labels.get(PREFIX + name, counts) not in ("true", "false")
    )


def settings_without_effect(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the labels and annotations of the prefix that a quota does not have, each with what is probably meant.

    An unknown one is a typing error, which would otherwise pass as a setting left out.
    """
    kinds = (("label", "labels", LABELS), ("annotation", "annotations", ANNOTATIONS))
    found = [
        (kind, key.removeprefix(PREFIX))
        for kind, field, known in kinds
        for key in sorted(metadata.get(field) or {})
        if key.startswith(PREFIX) and key.removeprefix(PREFIX) not in known
    ]
    texts = tuple(_without_effect(*each) for each in found[:_NAMED])
    if len(found) <= _NAMED:
        return texts
    return (*texts, f"{len(found) - _NAMED} more labels and annotations of {PREFIX} have no effect")


def _without_effect(kind: str, suffix: str) -> str:
    subject = f"{kind} {PREFIX}{suffix}"
    if suffix in OF_OTHER_KINDS:
        return f"{subject} has no effect on a quota; it belongs on {OF_OTHER_KINDS[suffix]}"
    if suffix in LABELS or suffix in ANNOTATIONS:
        return f"{subject} has no effect; it is read from {_kind_of(suffix)} of that name"
    from shared.closest_name import closest  # only here: it takes a tenth of a command's start

    text = f"{subject} is unknown, and has no effect"
    meant = closest(suffix, (*LABELS, *ANNOTATIONS))
    return f"{text}; perhaps {_kind_of(meant)} {meant!r} is meant" if meant else text


def _kind_of(suffix: str) -> str:
    return "the label" if suffix in LABELS else "the annotation"


def _bound_namespaces(metadata: Mapping[str, Any]) -> tuple[str, ...] | None:
    text = (metadata.get("annotations") or {}).get(PREFIX + "namespaces")
    if not text:
        return ()
    with contextlib.suppress(msgspec.MsgspecError):
        read: tuple[str, ...] = read_json(text, tuple[str, ...])
        return read
    return None


def _readable(metadata: Mapping[str, Any], suffix: str) -> dict[str, int] | None:
    with contextlib.suppress(BadResourceList):
        return resource_list(metadata, suffix)
    return None
