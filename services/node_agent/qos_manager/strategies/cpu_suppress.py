"""CPU suppress: best-effort pods may use the cpu that others leave below a threshold.

Source: spec/node-agent.md 3.1.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from services.node_agent.cgroup.cpu_conversions import PERIOD_US
from services.node_agent.qos_manager.strategies.cpu_selection import Processor, select
from services.node_agent.states_informer.annotations import ReservedCpus, pod_cpus, reserved_nanos, resource_status
from shared.domain.qos import QoS, is_best_effort, raw_qos
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.quantity import nanos
from shared.kube.slo_config import HostApplication, ResourceThreshold

MILLI_NANOS = 1_000_000
CORE_NANOS = 10**9
LEAST_CPUS = 2
LEAST_QUOTA_US = 2_000
CFS_QUOTA = "cfsQuota"
CPUSET = "cpuset"
DEFAULT_THRESHOLD = 65


class HostApp(NamedTuple):
    """A host application: processes outside of pods that the NodeSLO names.

    Attributes:
        best_effort: it lies in the best-effort cgroup and has QoS BE.
    """

    name: str
    best_effort: bool

    @classmethod
    def of(cls, app: HostApplication) -> "HostApp":
        """Converts one entry of `hostApplications`."""
        path = app.cgroup_path
        return cls(app.name, app.qos == "BE" and path is not None and path.base == "KubepodsBesteffort")


class Usage(NamedTuple):
    """Last samples of cpu, in nano-cores.

    Attributes:
        node: None without a sample.
        pods: by uid; those of unknown pods count as not best effort.
        host_apps: by name.
    """

    node: int | None
    pods: Mapping[str, int]
    host_apps: Mapping[str, int]


class Share(NamedTuple):
    """The cpu that best effort may use, and the node's own reservation that was subtracted; milli-cores."""

    suppress_milli: int
    reserved_milli: int


def best_effort_of(pods: Iterable[Pod]) -> frozenset[str]:
    """Returns the uids of best-effort pods."""
    return frozenset(pod.metadata.uid for pod in pods if is_best_effort(pod))


def suppress_share(
    node: Node,
    pods: Iterable[Pod],
    usage: Usage,
    host_apps: Iterable[HostApp],
    *,
    threshold_percent: int,
    least_percent: int | None,
    best_effort: frozenset[str] | None = None,
) -> Share:
    """Returns the cpu that best effort may use, from the newest samples.


        capacity * threshold - pods that are not best effort - host applications that are not - system
        system = max(node - all pods - all host applications, reserved)

    Each term is truncated to milli-cores.

    Args:
        best_effort: the result of `best_effort_of`, when it was computed before.
    """
    assert usage.node is not None, "called only with a sample of the node"
    capacity = node.status.capacity or {}
    capacity_nanos = nanos(capacity.get("cpu", "0"))
    allocatable_nanos = nanos((node.status.allocatable or {}).get("cpu", "0"))
    reserved = max(capacity_nanos - allocatable_nanos, reserved_nanos(node.metadata.annotations))
    if best_effort is None:
        best_effort = best_effort_of(pods)
    known = {app.name: app for app in host_apps}
    of_hosts = {name: used for name, used in usage.host_apps.items() if name in known}
    pods_other = sum(used for uid, used in usage.pods.items() if uid not in best_effort)
    hosts_other = sum(used for name, used in of_hosts.items() if not known[name].best_effort)
    system = max(usage.node - sum(usage.pods.values()) - sum(of_hosts.values()), 0, reserved)
    capacity_milli = capacity_nanos // MILLI_NANOS
    left = (
        capacity_milli * threshold_percent // 100
        - pods_other // MILLI_NANOS
        - hosts_other // MILLI_NANOS
        - system // MILLI_NANOS
    )
    if least_percent is not None:
        left = max(left, capacity_milli * least_percent // 100)
    return Share(left, reserved // MILLI_NANOS)


def cpu_count(suppress_milli: int, now: int, processors: int) -> int:
    """Returns the number of CPUs for best effort: at least 2.

    Grows by a tenth of the node's at most, and shrinks at once.
    """
    want = max(-(-suppress_milli // 1000), LEAST_CPUS)
    step = -(-processors // 10)
    return now + step if want - now > step else want


def cpu_pool(processors: Iterable[Processor], pods: Iterable[Pod], reserved_cpus: ReservedCpus) -> frozenset[int]:
    """Returns all CPUs that best effort may ever have: all but those of the node, of SYSTEM pods and of LSE pods."""
    own = frozenset[int]().union(*(pod_cpus(pod) for pod in pods if raw_qos(pod) is QoS.LSE))
    return frozenset(one.cpu for one in processors) - reserved_cpus.reserved - reserved_cpus.system - own


def select_cpus(
    suppress_milli: int,
    now: frozenset[int],
    processors: tuple[Processor, ...],
    pods: Iterable[Pod],
    reserved_cpus: ReservedCpus,
) -> frozenset[int]:
    """Returns the CPUs of best effort, divided between CPUs of LSR pods and others in proportion to their numbers.

    Empty: leave the present set.
    """
    left = {one.cpu: one for one in processors if one.cpu not in reserved_cpus.reserved | reserved_cpus.system}
    shared_with_lsr: set[int] = set()
    for pod in pods:
        match raw_qos(pod):
            case QoS.LSE:
                for cpu in pod_cpus(pod):
                    left.pop(cpu, None)
            case QoS.LSR:
                shared_with_lsr |= pod_cpus(pod)
    lsr = [one for cpu, one in left.items() if cpu in shared_with_lsr]
    others = [one for cpu, one in left.items() if cpu not in shared_with_lsr]
    if not left:
        return frozenset()
    want = cpu_count(suppress_milli, len(now), len(processors))
    of_lsr = want * len(lsr) // len(left)
    return frozenset((*select(of_lsr, lsr), *select(want - of_lsr, others)))


def quota(suppress_milli: int, now: int, cores: int) -> int | None:
    """Returns the best-effort quota in microseconds a period.

    None: leave it, as the difference is below 1 % of the node.

    It grows by a tenth of the node at a time and shrinks at once.
    """
    want = max(suppress_milli * PERIOD_US // 1000, LEAST_QUOTA_US)
    whole = cores * PERIOD_US
    if abs(want - now) * 100 < whole and want != LEAST_QUOTA_US:
        return None
    if now != -1 and (want - now) * 10 > whole:
        return now + whole // 10
    return want


class Policy(Enum):
    """The last effect of a policy on the cgroups."""

    USING = "using"
    RECOVERED = "recovered"


class CpusetLevels(NamedTuple):
    """CPUs for the cgroups of best effort; None leaves a level as it is.

    Attributes:
        folders: the best-effort folder and those of its pods.
        containers: all containers of those pods, or those that `spares` does not name.
        spares: uids of pods whose containers are left alone.
        by_steps: widen to the union from above, then narrow from below.
    """

    folders: frozenset[int] | None
    containers: frozenset[int] | None
    spares: frozenset[str] = frozenset()
    by_steps: bool = False


class Decision(NamedTuple):
    """The outcome of one cycle.

    Attributes:
        suppress_milli: None when it was not computed.
        cpus: in the order in which they are applied.
        quota_us: None: leave it.
        status: policy -> its last effect, for the next cycle.
    """

    suppress_milli: int | None
    cpus: tuple[CpusetLevels, ...]
    quota_us: int | None
    status: Mapping[str, Policy]


class SuppressInputs(NamedTuple):
    """The inputs of a cycle.

    Attributes:
        now_cpus, now_quota_us: of the best-effort cgroup.
        manager: the agent assigns CPUs to best effort pod by pod (gate BECPUManager).
        best_effort: as in `suppress_share`.
    """

    node: Node | None
    pods: tuple[Pod, ...]
    usage: Usage
    host_apps: tuple[HostApp, ...]
    processors: tuple[Processor, ...]
    reserved_cpus: ReservedCpus
    now_cpus: frozenset[int]
    now_quota_us: int
    manager: bool = False
    best_effort: frozenset[str] | None = None


def decide(threshold: ResourceThreshold | None, at: SuppressInputs, status: Mapping[str, Policy]) -> Decision:
    """Decides one cycle of suppress. Without `enable` nothing happens, not even a recovery."""
    if threshold is None or threshold.enable is None:
        return Decision(None, (), None, status)
    if at.manager:
        spares = frozenset(pod.metadata.uid for pod in at.pods if _has_cpus_of_its_own(pod))
        whole = cpu_pool(at.processors, at.pods, at.reserved_cpus)
        levels, done = (CpusetLevels(whole, whole, spares),), {**status, CPUSET: Policy.RECOVERED}
        return _recovered_quota(Decision(None, levels, None, done))
    if not threshold.enable:
        whole = cpu_pool(at.processors, at.pods, at.reserved_cpus)
        return _recovered_quota(
            Decision(None, (CpusetLevels(whole, whole),), None, {**status, CPUSET: Policy.RECOVERED})
        )
    if at.node is None or not at.pods or at.usage.node is None or not at.processors:
        return Decision(None, (), None, status)
    percent = threshold.cpu_suppress_threshold_percent
    left = suppress_share(
        at.node,
        at.pods,
        at.usage,
        at.host_apps,
        threshold_percent=DEFAULT_THRESHOLD if percent is None else percent,
        least_percent=threshold.cpu_suppress_min_percent,
        best_effort=at.best_effort,
    ).suppress_milli
    if threshold.cpu_suppress_policy == CFS_QUOTA:
        cores = -(-nanos((at.node.status.capacity or {}).get("cpu", "0")) // CORE_NANOS)
        using = {**status, CFS_QUOTA: Policy.USING, CPUSET: Policy.RECOVERED}
        whole = cpu_pool(at.processors, at.pods, at.reserved_cpus)
        return Decision(left, (CpusetLevels(whole, whole),), quota(left, at.now_quota_us, cores), using)
    cpus = select_cpus(left, at.now_cpus, at.processors, at.pods, at.reserved_cpus)
    if (
        at.reserved_cpus.static
    ):  # the kubelet changes its own CPUs on the levels in between, so each level gets its own set
        steps: tuple[CpusetLevels, ...] = (CpusetLevels(cpu_pool(at.processors, at.pods, at.reserved_cpus), None),)
        if cpus:
            steps += (CpusetLevels(None, cpus),)
    else:
        steps = (CpusetLevels(cpus, cpus, by_steps=True),) if cpus else ()
    return _recovered_quota(Decision(left, steps, None, {**status, CPUSET: Policy.USING}))


def _recovered_quota(decision: Decision) -> Decision:
    """Adds the removal of the quota, once after it was in use or after the start."""
    if decision.status.get(CFS_QUOTA) is Policy.RECOVERED:
        return decision
    return decision._replace(quota_us=-1, status={**decision.status, CFS_QUOTA: Policy.RECOVERED})


def _has_cpus_of_its_own(pod: Pod) -> bool:
    status = resource_status(pod)
    return bool(status.cpuset or status.numa_node_resources)
