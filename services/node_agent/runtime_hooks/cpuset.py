"""CPUs on which a container may run, apart from suppress. Source: spec/node-agent.md 4.4."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

import msgspec

from services.node_agent.states_informer.annotations import ResourceStatus, cpus, mapping, resource_status
from shared.domain.cpu_set import cpu_list
from shared.domain.qos import QoS, kubernetes_qos, raw_qos
from shared.kube.json_text import read_json
from shared.kube.node_resource_topology import BE_SHARED_POOLS, CPU_MANAGER_POLICY, SHARED_POOLS, SYSTEM_QOS
from shared.kube.pod import Pod


class _Pool(msgspec.Struct):
    socket: int = 0
    node: int = 0
    cpuset: str = ""


class CpuRule(NamedTuple):
    """Settings of the NodeResourceTopology: share pools by NUMA node, CPUs of SYSTEM pods, the kubelet's policy.

    Attributes:
        static: the kubelet allocates CPUs by its static policy.
        best_effort_too: the agent assigns CPUs to best effort pod by pod (gate BECPUManager).
    """

    ls: Mapping[int, str]
    be: Mapping[int, str]
    system: str
    static: bool
    best_effort_too: bool = False

    @classmethod
    def of(cls, annotations: Mapping[str, str] | None, *, best_effort_too: bool = False) -> Self:
        """Reads the topology's annotations."""
        return cls(
            _pools(annotations, SHARED_POOLS),
            _pools(annotations, BE_SHARED_POOLS),
            str(mapping(annotations, SYSTEM_QOS).get("cpuset") or ""),
            mapping(annotations, CPU_MANAGER_POLICY).get("policy") == "static",
            best_effort_too,
        )


def container_cpus(pod: Pod, rule: CpuRule | None) -> str | None:
    """Returns the CPUs of a pod's containers; "" removes a set, None leaves it.

    Args:
        rule: None without a NodeResourceTopology: only the scheduler's allocation counts.
    """
    status = resource_status(pod)
    if status.cpuset:
        return status.cpuset
    if rule is None:
        return None
    qos = raw_qos(pod)
    nodes = _numa_nodes(status)
    if nodes and (qos is not QoS.BE or rule.best_effort_too):
        pools = rule.be if qos is QoS.BE else rule.ls
        return _joined(pools.get(node, "") for node in nodes)
    if qos is QoS.SYSTEM and rule.system:
        return rule.system
    if qos is QoS.LS:
        return shared_cpus(rule)
    if kubernetes_qos(pod) == "BestEffort":
        return ""
    return None if rule.static else shared_cpus(rule)


def shared_cpus(rule: CpuRule) -> str:
    """Returns the CPUs of all share pools, on which LS host applications run."""
    return _joined(rule.ls.values())


def unlimited(pod: Pod) -> bool:
    """Reports whether the pod's quota is removed, as it has CPUs of its own."""
    return bool(resource_status(pod).cpuset)


def _numa_nodes(status: ResourceStatus) -> list[int]:
    given = (each for each in status.numa_node_resources or () if each.resources)
    return [
        each.node for each in given if each.resources and each.resources.keys() & {"cpu", "kubernetes.io/batch-cpu"}
    ]


def _pools(annotations: Mapping[str, str] | None, name: str) -> dict[int, str]:
    text = (annotations or {}).get(name)
    try:
        pools = read_json(text, list[_Pool]) if text else []
    except msgspec.MsgspecError:
        return {}
    return {pool.node: pool.cpuset for pool in sorted(pools, key=lambda pool: (pool.socket, pool.node))}


def _joined(pools: Iterable[str]) -> str:
    return cpu_list(frozenset[int]().union(*map(cpus, pools)))
