"""Requirements of a pod on CPUs and NUMA zones, independent of the node, and the requests that follow on one node.

Source: spec/scheduler-core.md 4.2, 4.4, 4.6; upstream pkg/scheduler/plugins/nodenumaresource/plugin.go.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import msgspec

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.plugins.helper.scheduling_hint_annotation import BadHint, read_hint
from services.scheduler.plugins.node_numa_resource import policy_names
from services.scheduler.plugins.node_numa_resource.allocation_annotations import allocation_of
from services.scheduler.plugins.node_numa_resource.amplification_ratio_annotation import amplified
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import NodeOptions
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation, Amounts
from shared.domain.pod_annotations import NUMA_SPEC, RESOURCE_SPEC, NumaSpec, ResourceSpec
from shared.domain.priority import Priority, priority
from shared.domain.qos import QoS, raw_qos
from shared.kube.json_text import read_json
from shared.kube.pod import Pod
from shared.type_error_words import field_fault, unreadable_annotation

NAME = "NodeNUMAResource"
T = TypeVar("T", bound=msgspec.Struct)


class PodRequirements(NamedTuple):
    """Requirements of a pod.

    Attributes:
        requests: resource -> amount, explicit zeros included.
        bind: it requires CPUs of its own.
        required: required bind policy, empty without one.
        preferred: preferred bind policy.
        exclusive: exclusive policy: whose CPUs it avoids.
        numa_policy, numa_exclusive: NUMA policy and exclusive policy of the pod.
        designated: the allocation that another component has chosen; only this one is possible.
    """

    requests: Amounts
    bind: bool = False
    required: str = ""
    preferred: str = ""
    exclusive: str = ""
    numa_policy: str = ""
    numa_exclusive: str = ""
    designated: Allocation | None = None


def read_requirements(pod: Pod, requests: Amounts, default_bind: str) -> PodRequirements | Rejection | None:
    """The requirements of a pod; None for one without any requests.

    Args:
        requests: of the whole pod.
        default_bind: the bind policy of pods that name none.
    """
    notes = pod.metadata.annotations or {}
    try:
        spec = _read(notes, RESOURCE_SPEC, ResourceSpec)
        numa = _read(notes, NUMA_SPEC, NumaSpec)
        hint = read_hint(notes)
    except (_Unreadable, BadHint) as error:
        return Rejection((Reason("UnreadableAnnotation", str(error)),), unresolvable=True, error=True)
    if not any(requests.values()):
        return None
    designated = allocation_of(notes) if hint and NAME in (hint.extensions or {}) else None
    requirements = PodRequirements(
        requests, numa_policy=numa.policy, numa_exclusive=numa.exclusive, designated=designated or None
    )
    if raw_qos(pod) not in (QoS.LSE, QoS.LSR) or priority(pod) is not Priority.PROD:
        return requirements
    required = default_bind if spec.required == policy_names.DEFAULT_BIND else spec.required
    preferred = default_bind if spec.preferred in ("", policy_names.DEFAULT_BIND) else spec.preferred
    policy = required or preferred
    if policy not in (policy_names.FULL_CORES, policy_names.SPREAD):
        return requirements
    cpu = requests.get("cpu", 0)
    if cpu % 1000:
        return Rejection((Reason("CpuNotInteger"),), unresolvable=True)
    if not cpu:
        return requirements
    return requirements._replace(bind=True, required=required, preferred=policy, exclusive=spec.exclusive)


class NodeRequest(NamedTuple):
    """Requests of a pod on one node.

    Attributes:
        requests: as the node counts them: amplified, for a pod with CPUs of its own.
        own_requests: as the pod has them.
        binds: it gets CPUs of its own, `cpus` of them.
        bind: their bind policy; `required` where it is not only preferred.
    """

    requests: Amounts
    own_requests: Amounts
    binds: bool
    cpus: int
    bind: str
    required: bool
    exclusive: str
    strategy: str

    @property
    def own_bind(self) -> str:
        """Bind policy of CPUs of its own, empty for a pod that gets none."""
        return self.bind if self.binds else ""

    @property
    def required_bind(self) -> str:
        """The required bind policy, empty without one."""
        return self.bind if self.required else ""


def node_request(requirements: PodRequirements, node: NodeOptions, default_strategy: str) -> NodeRequest:
    """The requests of the pod on the node, by the policies of both."""
    by_node = {policy_names.NODE_FULL_CORES: policy_names.FULL_CORES, policy_names.NODE_SPREAD: policy_names.SPREAD}
    cpu = requirements.requests.get("cpu", 0)
    binds = requirements.bind or (cpu > 0 and node.bind_policy != policy_names.NODE_NONE)
    bind = requirements.required or by_node.get(node.bind_policy, "")
    required = bool(bind)
    ratio = node.ratios.get("cpu", 1)
    requests: Mapping[str, int] = requirements.requests
    if binds and ratio > 1:
        requests = {**requests, "cpu": amplified(cpu, ratio)}
    strategy = default_strategy
    if node.strategy:
        strategy = policy_names.MOST if node.strategy == policy_names.MOST else policy_names.LEAST
    return NodeRequest(
        requests=requests,
        own_requests=requirements.requests,
        binds=binds,
        cpus=cpu // 1000 if binds else 0,
        bind=bind or requirements.preferred,
        required=required,
        exclusive=requirements.exclusive,
        strategy=strategy,
    )


class _Unreadable(Exception):
    """An unreadable annotation."""


def _read(notes: Mapping[str, str], name: str, kind: type[T]) -> T:
    text = notes.get(name)
    if not text:
        return kind()
    try:
        read_json(text)
        read: T = read_json(text, kind)
    except msgspec.MsgspecError as error:
        raise _Unreadable(unreadable_annotation(name, field_fault(error))) from error
    return read
