"""Owners, reservation affinity, taints and exact matches.

Source: spec/scheduler-workloads.md 1.5; upstream pkg/scheduler/plugins/reservation/transformer.go.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.parity.upstream.reservation.reserved import Amounts, Json, Reserved, requests_of

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT = "scheduling.koordinator.sh/exact-match-reservation"
IGNORED = "scheduling.koordinator.sh/reservation-ignored"
_CLOSED = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}


class BrokenAffinity(Exception):
    """The annotation is no JSON; its text is the parser's."""


@dataclass(frozen=True)
class Incoming:
    """The pod to be placed.

    Attributes:
        affinity: None without the annotation.
    """

    raw: Json
    request: Amounts
    affinity: Json | None
    exact: tuple[str, ...]
    is_ignored: bool

    @property
    def required_name(self) -> str:
        """The Reservation that it requires by name; empty for none."""
        return str((self.affinity or {}).get("name", ""))


@dataclass(frozen=True)
class Decision:
    """The decision on a pod and a Reservation.

    Attributes:
        result: `matched`, `ignored`, or the first reason against it.
        taint: the first one that the pod does not tolerate.
    """

    result: str
    taint: str = ""

    @property
    def is_match(self) -> bool:
        """Returns True where it is restored for the pod."""
        return self.result in ("matched", "ignored")


def incoming_of(pod: Json) -> Incoming:
    """Reads a pod.

    Raises:
        BrokenAffinity: as upstream rejects it.
    """
    annotations = pod["metadata"].get("annotations") or {}
    affinity: Json | None = None
    if (text := annotations.get(AFFINITY)) is not None:
        try:
            affinity = json.loads(text) if text else {}
        except json.JSONDecodeError:
            raise BrokenAffinity("unexpected end of JSON input") from None
    exact = json.loads(annotations.get(EXACT, "{}")).get("resourceNames") or ()
    ignored = (pod["metadata"].get("labels") or {}).get(IGNORED) == "true"
    return Incoming(pod, requests_of(pod), affinity, tuple(exact), ignored)


def decide(pod: Incoming, reserved: Reserved, node: Json) -> Decision:
    """Decides for one Reservation on its node."""
    affinity, spec, metadata = pod.affinity, reserved.raw["spec"], reserved.raw["metadata"]
    if pod.is_ignored:
        return Decision("ignored")
    if not owns(pod.raw, reserved):
        return Decision("owner")
    exact = Decision("matched" if _is_exact(pod, reserved) else "notExact")
    if pod.required_name:
        return exact if pod.required_name == reserved.name else Decision("name")
    tolerations = (affinity or {}).get("tolerations") or ()
    is_closed = spec.get("unschedulable") or metadata.get("deletionTimestamp")
    if is_closed and not any(_tolerates(each, _CLOSED) for each in tolerations):
        return Decision("unschedulable")
    if affinity is not None:
        for taint in spec.get("taints") or ():
            is_hard = taint.get("effect") in ("NoSchedule", "NoExecute")
            if is_hard and not any(_tolerates(each, taint) for each in tolerations):
                return Decision("taints", f"{{{taint['key']}: {taint.get('value', '')}}}")
        labels = {**(node["metadata"].get("labels") or {}), **(metadata.get("labels") or {})}
        if not _is_selected(affinity, labels, reserved.name):
            return Decision("affinity")
    return exact


def owns(pod: Json, reserved: Reserved) -> bool:
    """Reports whether the pod is named by one of the owners."""
    return reserved.is_valid and any(
        _is_owner(pod["metadata"], owner) for owner in reserved.raw["spec"].get("owners", ())
    )


def _is_owner(metadata: Json, owner: Json) -> bool:
    if (named := owner.get("object")) is not None and (
        named.get("apiVersion")
        or any(named.get(key, "") not in ("", metadata[key]) for key in ("uid", "name", "namespace"))
    ):
        return False
    if (named := owner.get("controller")) is not None:
        if named.get("namespace", "") not in ("", metadata["namespace"]):
            return False
        if not any(_is_controller(named, reference) for reference in metadata.get("ownerReferences") or ()):
            return False
    if (selector := owner.get("labelSelector")) is not None:
        labels = metadata.get("labels") or {}
        required = selector.get("matchLabels") or {}
        return required.items() <= labels.items() and all(
            _meets(each, labels) for each in selector.get("matchExpressions") or ()
        )
    return True


def _is_controller(named: Json, reference: Json) -> bool:
    flag = named.get("controller")
    return (flag is None or flag == bool(reference.get("controller"))) and all(
        named.get(key, "") in ("", reference.get(key, "")) for key in ("uid", "name", "kind", "apiVersion")
    )


def _meets(expression: Json, labels: Mapping[str, Any]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or ()
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _is_selected(affinity: Json, labels: Mapping[str, Any], name: str) -> bool:
    if not (affinity.get("reservationSelector") or {}).items() <= labels.items():
        return False
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(
        bool(term.get("matchExpressions") or term.get("matchFields"))
        and all(_meets(each, labels) for each in term.get("matchExpressions") or ())
        and all(_meets(each, {"metadata.name": name}) for each in term.get("matchFields") or ())
        for term in required.get("reservationSelectorTerms") or ()
    )


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect", "") not in ("", taint["effect"]) or toleration.get("key", "") not in ("", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _is_exact(pod: Incoming, reserved: Reserved) -> bool:
    for name in pod.exact:
        one, other = pod.request.get(name), reserved.allocatable.get(name)
        if one is None and other is None:
            return True
        if one != other:
            return False
    return True
