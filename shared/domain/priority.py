"""Priority classes of a pod (prod, mid, batch, free), and the resources that each of them uses.

Source: spec/api.md 3; upstream apis/extension/{priority,priority_utils,resource}.go.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from shared.domain.qos import QoS, qos
from shared.kube.pod import Pod

SUB_PRIORITY = "koordinator.sh/priority"
"""Label with the order of pods within their priority class."""

LABEL = "koordinator.sh/priority-class"
"""The label of the class; it takes precedence over the value of `spec.priority`."""


SYSTEM_CRITICAL = 2_000_000_000
"""`spec.priority` of the class system-cluster-critical, the lowest of the critical ones."""


class Priority(StrEnum):
    """Koordinator's priority class; NONE is a pod outside of every band."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""


_BY_TEXT = {priority.value: priority for priority in Priority}
_BANDS = (
    (9000, 9999, Priority.PROD),
    (7000, 7999, Priority.MID),
    (5000, 5999, Priority.BATCH),
    (3000, 3999, Priority.FREE),
)
_DEFAULT_VALUE = {Priority.PROD: 9500, Priority.MID: 7500, Priority.BATCH: 5500, Priority.FREE: 3500, Priority.NONE: 0}
_TRANSLATED = {
    Priority.BATCH: {"cpu": "kubernetes.io/batch-cpu", "memory": "kubernetes.io/batch-memory"},
    Priority.MID: {"cpu": "kubernetes.io/mid-cpu", "memory": "kubernetes.io/mid-memory"},
    Priority.FREE: {},
}
OVERCOMMITTED = frozenset(name for names in _TRANSLATED.values() for name in names.values())
"""Resources that a node has of what others request and do not use: a usage report comes first."""


_SUB_PRIORITY = re.compile(
    r"(?P<sign>[+-]?)(?P<digits>0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|[1-9][0-9]*|0)"
).fullmatch


def sub_priority(labels: Mapping[str, str]) -> int:
    """Returns the order within the priority class by the pod's label: an int32, whose prefix says its base; 0 without a
    label, and for text that is no such number.

    Source: spec/api.md 3, `koordinator.sh/priority`.
    """
    text = labels.get(SUB_PRIORITY)
    return (_read_sub_priority(text) if text else None) or 0


def is_sub_priority(text: str) -> bool:
    """Returns whether a text of that label can be read."""
    return _read_sub_priority(text) is not None


def _read_sub_priority(text: str) -> int | None:
    found = _SUB_PRIORITY(text)
    if found is None:
        return None
    digits = found["digits"].lower()
    number = int(digits, 8 if re.fullmatch("0[0-7]+", digits) else 0) * (-1 if found["sign"] == "-" else 1)
    return number if -(1 << 31) <= number < 1 << 31 else None


def raw_priority(pod: Pod) -> Priority:
    """Returns the class by the pod's label if it has one (NONE for an unknown name), else by `spec.priority`."""
    labels = pod.metadata.labels
    if labels and (name := labels.get(LABEL)) is not None:
        return _BY_TEXT.get(name, Priority.NONE)
    return of_value(pod.spec.priority)


def priority(pod: Pod) -> Priority:
    """Returns the class by label or priority, else by the pod's QoS class: BE is batch, every other one prod."""
    explicit = raw_priority(pod)
    if explicit:
        return explicit
    stands_for = qos(pod)
    if stands_for is QoS.NONE:
        return Priority.NONE
    return Priority.BATCH if stands_for is QoS.BE else Priority.PROD


def of_value(value: int | None) -> Priority:
    """Returns the class whose band (bounds included) contains a `spec.priority`; NONE between bands and without a value."""
    if value is None:
        return Priority.NONE
    return next((band for low, high, band in _BANDS if low <= value <= high), Priority.NONE)


def priority_value(pod: Pod) -> int:
    """Returns `spec.priority` when it is set and not 0, else the default value of the pod's class."""
    return pod.spec.priority or _DEFAULT_VALUE[priority(pod)]


def resource_of(class_: Priority, resource: str) -> str:
    """Returns the resource that a pod of a class requests instead of `resource`; empty when the class has none for it.

    Prod pods and those without a class use cpu and memory as they are; batch and mid have extended resources for these
    two and nothing else; free has none at all.
    """
    translated = _TRANSLATED.get(class_)
    return resource if translated is None else translated.get(resource, "")
