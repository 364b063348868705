"""Tolerations of a pod against taints of nodes."""

from shared.kube.node import Taint
from shared.kube.pod import Toleration

HARD = ("NoSchedule", "NoExecute")
"""Effects of taints that keep a pod off a node."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Returns True where a toleration covers a taint: effect and key equal or empty, and the value equal or unchecked."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    return operator == "Exists" or (operator == "Equal" and toleration.value == taint.value)
