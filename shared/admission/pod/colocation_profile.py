"""ClusterColocationProfile: the selection of pods by profiles, and the changes that a profile makes.

Source: spec/api.md 1.8, 5.3; upstream pkg/webhook/pod/mutating/cluster_colocation_profile.go.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from shared.admission.pod.pod_json import (
    Raw,
    all_containers,
    annotations_of,
    copy_of,
    labels_of,
    pod_of,
    resources_of,
    writable_resources,
)
from shared.admission.rejection import AdmissionRejected
from shared.domain.node_selection import meets, problem_of
from shared.domain.priority import SUB_PRIORITY, Priority, priority, resource_of
from shared.domain.qos import LABEL as QOS
from shared.kube.json_text import read_json
from shared.kube.quantity import milli, nanos
from shared.kube.selectors import LabelSelector
from shared.kube.strategic_merge import BadPatch, merged

SKIP_RESOURCES = "config.koordinator.sh/skip-update-resources"
_PERCENT = re.compile(r"[+-]?\d+%")

Draw = Callable[[str], int]
"""Profile name -> 0..99, constant during one admission: compared with the profile's probability."""

PriorityClasses = Mapping[str, Raw]
Namespaces = Mapping[str, Raw]


def matching(pod: Raw, namespace: str, profiles: Iterable[Raw], namespaces: Namespaces) -> list[Raw]:
    """Returns the profiles that select a pod, by name.

    A selector that cannot be evaluated, or an unknown namespace, counts as a match by itself; the profile's other
    selector still decides. (Quirk of spec/api.md 5.3 step 2.)
    """
    found = []
    for profile in profiles:
        spec = profile.get("spec") or {}
        by_namespace, by_pod = spec.get("namespaceSelector"), spec.get("selector")
        if by_namespace:
            there = namespaces.get(namespace)
            if there is not None and not _selects(by_namespace, labels_of(there)):
                continue
        if by_pod and not _selects(by_pod, labels_of(pod)):
            continue
        found.append(profile)
    return sorted(found, key=lambda profile: str(profile["metadata"]["name"]))


def applied(
    pod: Raw, profiles: Iterable[Raw], classes: PriorityClasses, draw: Draw, *, translates: bool = True
) -> dict[str, Any]:
    """Applies the profiles that select a pod, one after the other.

    Args:
        profiles: the selected profiles, by name.
        translates: rename cpu and memory to the resources of the pod's priority class.

    Raises:
        AdmissionRejected: `probability`, `priorityClass`, `patch`, `malformed`.
    """
    result = copy_of(pod)
    for profile in profiles:
        if SKIP_RESOURCES in annotations_of(profile):
            translates = False
        if _drawn(profile, draw):
            result = _apply(result, profile, classes)
    if translates:
        translate(result)
    return result


def translate(pod: dict[str, Any]) -> None:
    """Renames cpu and memory to the extended resources of the pod's priority class, in place; only mid and batch have such."""
    class_ = priority(pod_of(pod))
    if class_ not in (Priority.MID, Priority.BATCH):
        return
    names = {name: resource_of(class_, name) for name in ("cpu", "memory")}
    for container in all_containers(pod):
        for kind in ("requests", "limits"):
            if resources_of(container, kind):
                _rename(writable_resources(container, kind), names)
        limits = resources_of(container, "limits")
        for name in names.values():
            if name in limits and name not in resources_of(container, "requests"):
                writable_resources(container, "requests")[name] = limits[name]
    if overhead := pod["spec"].get("overhead"):
        _rename(overhead, names)


def _rename(amounts: Any, names: Mapping[str, str]) -> None:
    for name, extended in names.items():
        if name in amounts:
            text = amounts.pop(name)
            amounts[extended] = str(milli(nanos(str(text)))) if name == "cpu" else text


def _drawn(profile: Raw, draw: Draw) -> bool:
    percent = _percent(profile)
    return percent > 0 and (percent >= 100 or draw(str(profile["metadata"]["name"])) < percent)


def _apply(pod: dict[str, Any], profile: Raw, classes: PriorityClasses) -> dict[str, Any]:
    spec, name = profile.get("spec") or {}, str(profile["metadata"]["name"])
    _state(pod, spec, name, classes)
    if not spec.get("patch"):
        return pod
    result = _merged(pod, name, spec["patch"])
    try:
        pod_of(result)
    except AdmissionRejected as error:
        raise AdmissionRejected("patch", f"profile {name}: its patch does not make a pod: {error}") from error
    return copy_of(result)


def _state(target: dict[str, Any], spec: Raw, name: str, classes: PriorityClasses) -> None:
    """Applies everything but the patch, in place."""
    metadata = target.setdefault("metadata", {})
    for kind in ("labels", "annotations"):
        if spec.get(kind):
            metadata.setdefault(kind, {}).update(spec[kind])
    for kind in ("labels", "annotations"):
        if mapping := spec.get(f"{kind[:-1]}KeysMapping"):
            texts = metadata.setdefault(kind, {})
            for source, copy in sorted(mapping.items()):
                texts[copy] = texts.get(source, "")
    labels = metadata.get("labels") or {}
    for label, suffix in (spec.get("labelSuffixes") or {}).items():
        if label in labels:
            labels[label] += suffix
    if spec.get("schedulerName"):
        target.setdefault("spec", {})["schedulerName"] = spec["schedulerName"]
    if spec.get("qosClass"):
        metadata.setdefault("labels", {})[QOS] = spec["qosClass"]
    if spec.get("priorityClassName"):
        _set_priority(target, name, spec["priorityClassName"], classes)
    if spec.get("koordinatorPriority") is not None:
        metadata.setdefault("labels", {})[SUB_PRIORITY] = str(spec["koordinatorPriority"])


def _set_priority(pod: dict[str, Any], profile: str, name: str, classes: PriorityClasses) -> None:
    if (class_ := classes.get(name)) is None:
        message = f"profile {profile}: there is no PriorityClass {name}; create it or correct the profile"
        raise AdmissionRejected("priorityClass", message)
    spec = pod.setdefault("spec", {})
    spec["priorityClassName"], spec["priority"] = name, class_.get("value", 0)
    if class_.get("preemptionPolicy"):
        spec["preemptionPolicy"] = class_["preemptionPolicy"]
    else:
        spec.pop("preemptionPolicy", None)


def _merged(target: Raw, profile: str, patch: Any) -> dict[str, Any]:
    if not isinstance(patch, Mapping):
        raise AdmissionRejected("patch", f"profile {profile}: its patch is no object")
    try:
        return merged(target, patch)
    except BadPatch as error:
        raise AdmissionRejected("patch", f"profile {profile}: its patch cannot be applied: {error}") from error


def _percent(profile: Raw) -> int:
    probability = (profile.get("spec") or {}).get("probability")
    if probability is None:
        return 100
    if isinstance(probability, int) and not isinstance(probability, bool):
        return probability
    if isinstance(probability, str) and _PERCENT.fullmatch(probability):
        return int(probability[:-1])
    message = f"profile {profile['metadata']['name']}: its probability is {probability!r}; give a number 0..100 or a text like 30%"
    raise AdmissionRejected("probability", message)


def _selects(raw: Raw, labels: Mapping[str, str]) -> bool:
    selector = _readable(msgspec.json.encode(raw))
    return selector is None or meets(selector, labels)


@lru_cache(maxsize=4096)
def _readable(encoded: bytes) -> LabelSelector | None:
    """Reads a selector; None if it cannot be read. Cached, so that each selector is read once for all pods."""
    try:
        selector = read_json(encoded, LabelSelector)
    except msgspec.ValidationError:
        return None
    return None if problem_of(selector) else selector


def applied_to_reservation(
    reservation: Raw, profiles: Iterable[Raw], classes: PriorityClasses, draw: Draw
) -> dict[str, Any]:
    """Applies the profiles whose selector selects a Reservation's labels; namespaces and resources are ignored.

    Labels, annotations, QoS and sub-priority are set on the Reservation itself, the scheduler's name and the priority
    on its template.

    Raises:
        AdmissionRejected: `probability`, `priorityClass`, `patch`.
    """
    result = copy_of(reservation)
    chosen = [
        profile
        for profile in sorted(profiles, key=lambda each: str(each["metadata"]["name"]))
        if not (by_labels := (profile.get("spec") or {}).get("selector")) or _selects(by_labels, labels_of(reservation))
    ]
    for profile in chosen:
        if not _drawn(profile, draw):
            continue
        name, spec = str(profile["metadata"]["name"]), profile.get("spec") or {}
        template = result.setdefault("spec", {}).setdefault("template", {})
        both = {"metadata": result.setdefault("metadata", {}), "spec": template.setdefault("spec", {})}
        _state(both, spec, name, classes)
        if spec.get("patch"):
            result = copy_of(_merged(result, name, spec["patch"]))
    return result
