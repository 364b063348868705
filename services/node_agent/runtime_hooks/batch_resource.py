"""CPU shares, quota and memory limit of BE pods from their batch resources. Source: spec/node-agent.md 4.5."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from services.node_agent.cgroup import cpu_conversions
from services.node_agent.runtime_hooks.cpu_normalization import scaled
from shared.domain.qos import QoS, raw_qos
from shared.kube.json_text import read_json
from shared.kube.pod import Pod, ResourceRequirements
from shared.kube.quantity import BadQuantity, nanos, value
from shared.kube.slo_config import ResourceThreshold

SPEC = "node.koordinator.sh/extended-resource-spec"
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
NO_LIMIT = -1


class Batch(NamedTuple):
    """Batch resources of a container: milli-cores and bytes; a limit of -1 is none."""

    cpu_request: int
    cpu_limit: int
    memory_limit: int


class Values(NamedTuple):
    """The values of a cgroup."""

    shares: int
    quota_us: int
    memory_limit: int


class BatchRule(NamedTuple):
    """The settings of the node that apply to batch resources.

    Attributes:
        quota: quotas are set; None before the first NodeSLO. Suppress by quota limits best effort as a whole instead.
        ratio: CPU normalization; None before the first Node, -1 for none.
    """

    quota: bool | None = None
    ratio: float | None = None

    def with_threshold(self, threshold: ResourceThreshold | None) -> "BatchRule":
        """Returns the rule under a NodeSLO."""
        by_quota = threshold is not None and threshold.cpu_suppress_policy == "cfsQuota" and threshold.enable is True
        return self._replace(quota=not by_quota)


def batch_requests(pod: Pod) -> Mapping[str, Batch] | None:
    """Returns batch resources by container: of the spec, else of the annotation; None when there are none."""
    found = {
        container.name: batch
        for container in pod.spec.containers
        if container.resources and (batch := _batch(container.resources)) is not None
    }
    return found or _annotated(pod)


def _annotated(pod: Pod) -> Mapping[str, Batch] | None:
    text = (pod.metadata.annotations or {}).get(SPEC)
    if not text:
        return None
    try:
        containers = read_json(text, _Spec).containers
    except msgspec.MsgspecError:
        return None
    if containers is None:
        return None
    nothing = Batch(0, NO_LIMIT, NO_LIMIT)  # a container that the annotation names counts, even without amounts
    return {name: _batch(resources) or nothing for name, resources in containers.items()}


class _Spec(msgspec.Struct):
    containers: dict[str, ResourceRequirements] | None = None


def _batch(resources: ResourceRequirements) -> Batch | None:
    requests, limits = _amounts(resources.requests), _amounts(resources.limits)
    if not requests and not limits:
        return None
    return Batch(requests.get(CPU, 0), limits.get(CPU, 0) or NO_LIMIT, limits.get(MEMORY, 0) or NO_LIMIT)


def _amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    found = {}
    for name in (CPU, MEMORY):
        if quantities and name in quantities:
            try:
                found[name] = value(nanos(quantities[name]))
            except BadQuantity:
                continue
    return found


def container_values(batch: Batch, rule: BatchRule) -> Values:
    """Returns the values of a container's cgroup."""
    return Values(cpu_conversions.shares(batch.cpu_request), _quota(batch.cpu_limit, rule), batch.memory_limit)


def pod_values(containers: Mapping[str, Batch], rule: BatchRule) -> Values:
    """Returns the values of a pod's cgroup: sums over the containers with batch resources; no limit if one has none."""
    cpu = [batch.cpu_limit for batch in containers.values()]
    memory = [batch.memory_limit for batch in containers.values()]
    return Values(
        cpu_conversions.shares(sum(batch.cpu_request for batch in containers.values())),
        _quota(NO_LIMIT if NO_LIMIT in cpu else sum(cpu), rule),
        NO_LIMIT if NO_LIMIT in memory else sum(memory),
    )


def applies(pod: Pod) -> bool:
    """Reports whether the hook applies to a pod."""
    return raw_qos(pod) is QoS.BE


def _quota(cpu_limit_milli: int, rule: BatchRule) -> int:
    if rule.quota is False or cpu_limit_milli <= 0:
        return NO_LIMIT
    return scaled(cpu_conversions.quota(cpu_limit_milli), rule.ratio)
