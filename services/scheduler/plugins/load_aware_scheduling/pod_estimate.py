"""Estimate of a pod's usage, before anything is measured.

    base     = limit if limit > request else request, of the resource that the pod's class uses
    estimate = min( goround(base * factor / 100), limit if there is one )

A pod with neither counts 250m cpu and 200Mi memory. Estimates are named by the resource of the factor (`cpu`),
even if the pod's class uses another one (`kubernetes.io/batch-cpu`).

Source: spec/scheduler-core.md 3.2; upstream pkg/scheduler/plugins/loadaware/estimator/default_estimator.go.
"""

import math
from collections.abc import Mapping

from services.scheduler.plugins.load_aware_scheduling.args import LoadAwareArgs
from services.scheduler.plugins.load_aware_scheduling.int64_bound import bounded
from services.scheduler.state.ignored_pod_settings import ESTIMATED_FACTORS
from services.scheduler.state.strict_annotation_parsing import read_amounts, read_counts
from shared.domain.pod_requests import Nanos, PodAmounts, read_pod_amounts
from shared.domain.priority import Priority, priority, resource_of
from shared.kube.node import RAW_ALLOCATABLE, Node
from shared.kube.pod import Pod
from shared.kube.quantity import amount, amounts

_CPU_DEFAULT_MILLI = 250
_MEMORY_DEFAULT = 200 << 20
_DEFAULTS = {
    "cpu": _CPU_DEFAULT_MILLI,
    "kubernetes.io/batch-cpu": _CPU_DEFAULT_MILLI,
    "memory": _MEMORY_DEFAULT,
    "kubernetes.io/batch-memory": _MEMORY_DEFAULT,
}


def goround(x: float) -> int:
    """The nearest integer, halves away from zero: `round()` would take halves to the even neighbour."""
    whole = math.trunc(x)
    return whole + (1 if x > 0 else -1) if abs(x - whole) >= 0.5 else whole


def factors_of(pod: Pod, args: LoadAwareArgs) -> Mapping[str, int]:
    """Resource -> percent of the base: the arguments', overridden one by one by the pod's annotation where allowed."""
    factors = args.estimated_scaling_factors
    if args.allow_customize_estimation and (annotations := pod.metadata.annotations):
        return factors | read_counts(annotations.get(ESTIMATED_FACTORS))
    return factors


def estimate_pod(
    pod: Pod, args: LoadAwareArgs, class_: Priority | None = None, pod_amounts: PodAmounts | None = None
) -> dict[str, int]:
    """The estimated usage of the pod, of every resource with a factor: cpu in milli-cores, the rest in whole units.

    Args:
        class_, pod_amounts: of the pod, if they have been read already.
    """
    class_, pod_amounts = class_ or priority(pod), pod_amounts or read_pod_amounts(pod)
    requests, limits = pod_amounts.requests, pod_amounts.limits
    return {
        resource: bounded(_estimate(class_, resource, factor, requests, limits))
        for resource, factor in factors_of(pod, args).items()
    }


def estimate_node(node: Node) -> dict[str, int]:
    """The amounts that usage is compared with: allocatable, for an amplified node the raw amounts."""
    return amounts(node.status.allocatable or {}) | raw_amounts(node)


def raw_amounts(node: Node) -> dict[str, int]:
    """The amounts of an amplified node before its amplification, which take precedence over allocatable."""
    return read_amounts((node.metadata.annotations or {}).get(RAW_ALLOCATABLE))


def _estimate(class_: Priority, resource: str, factor: int, requests: Nanos, limits: Nanos) -> int:
    real = resource_of(class_, resource)
    limit = limits.get(real, 0)
    base = max(limit, requests.get(real, 0))
    if not base:
        return _DEFAULTS.get(real, 0)
    estimated = goround(float(amount(real, base)) * float(factor) / 100)
    return min(estimated, amount(real, limit)) if limit > 0 else estimated
