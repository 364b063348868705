"""CPU normalization: shorter quotas on faster CPUs. A core worth 1.2 of the fleet's is allocated for 1/1.2 of the time.

Source: spec/node-agent.md 4.6.
"""

import math
from typing import NamedTuple

from services.node_agent.cgroup import cpu_conversions
from services.node_agent.states_informer.annotations import resource_status
from shared.domain.qos import QoS, raw_qos
from shared.errors import KoordError
from shared.kube.pod import Container, Pod
from shared.kube.quantity import milli, nanos

ANNOTATION = "node.koordinator.sh/cpu-normalization-ratio"
LEAST_CHANGE = 0.01
NONE = -1.0


class BadRatio(KoordError):
    """A node's ratio that is not a positive number; the last good one stays."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"annotation {ANNOTATION} is {text!r}; give a number above 0. The last good one stays in force"
        )


class Normalization(NamedTuple):
    """The ratio in force; NONE when the node has none."""

    enabled: bool = False
    ratio: float = NONE

    def with_annotation(self, text: str | None) -> "Normalization":
        """Returns the rule under a node's annotation; changes below 0.01 are ignored.

        Raises:
            BadRatio: it is not a positive number.
        """
        ratio = parse(text)
        if ratio is None:
            return Normalization()
        if self.enabled and abs(ratio - self.ratio) < LEAST_CHANGE:
            return self
        return Normalization(enabled=True, ratio=ratio)


def parse(text: str | None) -> float | None:
    """Parses a node's ratio; None without one.

    Raises:
        BadRatio: it is not a positive number.
    """
    if text is None:
        return None
    try:
        ratio = float(text)
    except ValueError as error:
        raise BadRatio(text) from error
    if not 0 < ratio < math.inf:
        raise BadRatio(text)
    return ratio


def scaled(quota_us: int, ratio: float | None) -> int:
    """Returns a quota on a node of that ratio; only ratios above 1 shorten it."""
    if quota_us <= 0 or ratio is None or ratio <= 1:
        return quota_us
    return math.ceil(quota_us / ratio)


def applies(pod: Pod) -> bool:
    """Reports whether a pod's quotas are scaled: LS pods and those without a class, unless they have CPUs of their own.

    Q: of pods without a class, only one that has labels is spared for its CPUs.
    """
    qos = raw_qos(pod)
    if qos is QoS.NONE and pod.metadata.labels:
        return not resource_status(pod).cpuset
    return qos in {QoS.LS, QoS.NONE}


def container_quota(container: Container, rule: Normalization) -> int | None:
    """Returns a container's quota in microseconds a period; None leaves it."""
    limit = _limit_milli(container)
    return scaled(cpu_conversions.quota(limit), rule.ratio) if rule.enabled and limit > 0 else None


def pod_quota(pod: Pod, rule: Normalization) -> int | None:
    """Returns a pod's quota, from the sum of the limits that are set."""
    limit = sum(_limit_milli(container) for container in pod.spec.containers)
    return scaled(cpu_conversions.quota(limit), rule.ratio) if rule.enabled and limit > 0 else None


def _limit_milli(container: Container) -> int:
    limits = (container.resources and container.resources.limits) or {}
    return milli(nanos(limits["cpu"])) if "cpu" in limits else 0
