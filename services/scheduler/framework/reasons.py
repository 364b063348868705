"""Why a node was refused or a pod was not attempted: stable codes, and their texts in English and Chinese.

A code never changes once it is released: dashboards, tests and people match on it. The English text is the one
Kubernetes and Koordinator write into a pod's condition, because existing tools match on it; a detail (a resource, a taint) is part of
the text only where it is part of theirs.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Reason(NamedTuple):
    """Why one plugin refuses a node.

    Attributes:
        code: a key of REASONS.
        detail: what the code is about: a resource, a taint; empty when there is nothing to add.
    """

    code: str
    detail: str = ""


class Text(NamedTuple):
    """A reason in words; `{detail}` stands for the detail."""

    english: str
    chinese: str


NO_NODES = "NoNodes"
UNREADABLE_POD = "UnreadablePod"
NODE_UNKNOWN = "NodeUnknown"

REASONS: Mapping[str, Text] = {
    # Of a node, by a plugin.
    "NodeUnschedulable": Text("node(s) were unschedulable", "节点被标记为不可调度"),
    "NodeNameMismatch": Text("node(s) didn't match the requested node name", "节点名与 Pod 指定的不一致"),
    "UntoleratedTaint": Text("node(s) had untolerated taint(s)", "节点有 Pod 不容忍的污点"),
    "NodeAffinityMismatch": Text(
        "node(s) didn't match Pod's node affinity/selector", "节点不满足 Pod 的节点选择器或亲和性"
    ),
    "EnforcedNodeAffinityMismatch": Text(
        "node(s) didn't match scheduler-enforced node affinity", "节点不满足调度器附加的节点亲和性"
    ),
    "HostPortTaken": Text("node(s) didn't have free ports for the requested pod ports", "Pod 要求的主机端口已被占用"),
    "TooManyPods": Text("Too many pods", "节点上的 Pod 数已达上限"),
    "InsufficientResource": Text("Insufficient {detail}", "{detail} 不足"),
    "TopologyLabelMissing": Text(
        "node(s) didn't match pod topology spread constraints (missing required label)",
        "节点缺少拓扑分布约束所需的标签",
    ),
    "TopologySpreadViolated": Text(
        "node(s) didn't match pod topology spread constraints", "放在该节点会违反 Pod 的拓扑分布约束"
    ),
    "PodAffinityMismatch": Text("node(s) didn't match pod affinity rules", "节点不满足 Pod 间亲和性规则"),
    "PodAntiAffinityMismatch": Text("node(s) didn't match pod anti-affinity rules", "节点不满足 Pod 间反亲和性规则"),
    "ExistingPodsAntiAffinity": Text(
        "node(s) didn't satisfy existing pods anti-affinity rules", "与节点所在拓扑域内已有 Pod 的反亲和性规则冲突"
    ),
    "VolumeNodeConflict": Text("node(s) didn't match PersistentVolume's node affinity", "节点不满足持久卷的节点亲和性"),
    "NoVolumeToBind": Text("node(s) didn't find available persistent volumes to bind", "节点没有可绑定的持久卷"),
    "NoStorageLeft": Text("node(s) did not have enough free storage", "节点可用的存储容量不足"),
    "VolumeMissing": Text(
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)", "有 PVC 绑定的 PV 不存在"
    ),
    "ClaimMissing": Text('persistentvolumeclaim "{detail}" not found', "PVC {detail} 不存在"),
    "ClaimLost": Text(
        'persistentvolumeclaim "{detail}" bound to non-existent persistentvolume', "PVC {detail} 绑定的 PV 已不存在"
    ),
    "ClaimDeleting": Text('persistentvolumeclaim "{detail}" is being deleted', "PVC {detail} 正在删除"),
    "ClaimUnbound": Text("pod has unbound immediate PersistentVolumeClaims", "Pod 有未绑定的立即绑定型 PVC"),
    "VolumesPending": Text("node(s) wait for the pod's volumes to be bound", "已选定节点，等待 Pod 的存储卷完成绑定"),
    "VolumeZoneConflict": Text("node(s) had no available volume zone", "节点所在可用区与存储卷不一致"),
    "DiskConflict": Text("node(s) had no available disk", "磁盘已被节点上的其他 Pod 独占"),
    "ClaimInUse": Text(
        "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",
        "ReadWriteOncePod 的 PVC 已被其他 Pod 使用",
    ),
    "TooManyVolumes": Text("node(s) exceed max volume count", "节点可挂载的存储卷数已达上限"),
    "NodeMetricExpired": Text("node(s) nodeMetric expired", "节点的 NodeMetric 已过期"),
    "UsageExceedsThreshold": Text("node(s) {detail} usage exceed threshold", "节点 {detail} 使用率超过阈值"),
    "AggregatedUsageExceedsThreshold": Text(
        "node(s) {detail} aggregated usage exceed threshold", "节点 {detail} 聚合使用率超过阈值"
    ),
    # Of a pod, by its quota.
    "QuotaExceeded": Text("Insufficient quotas, quotaName: {detail}", "配额不足，配额：{detail}"),
    "NonPreemptibleQuotaExceeded": Text(
        "Insufficient non-preemptible quotas, quotaName: {detail}", "不可抢占 Pod 的保障配额（min）不足，配额：{detail}"
    ),
    "ParentQuotaExceeded": Text("Insufficient quotas of a parent, quotaName: {detail}", "上级配额不足，配额：{detail}"),
    "QuotaLedgerUnreachable": Text("the quota ledger does not answer", "配额账本无应答"),
    # Of a node, by NodeNUMAResource.
    "CpuNotInteger": Text("the requested CPUs must be integer", "绑核 Pod 请求的 CPU 必须为整数"),
    "NumaPolicyMismatch": Text("node(s) NUMA Topology policy not match", "节点与 Pod 的 NUMA 拓扑策略不一致"),
    "InsufficientAmplifiedCpu": Text("Insufficient amplified cpu", "节点放大后的 CPU 不足"),
    "InvalidCpuTopology": Text("node(s) invalid CPU Topology", "节点的 CPU 拓扑无效"),
    "CpuBindPolicyConflict": Text(
        "node(s) cpu bind policy conflicts with pod's required cpu bind policy", "节点的绑核策略与 Pod 要求的冲突"
    ),
    "CpusNotWholeCores": Text(
        "node(s) requested cpus not multiple cpus per core", "请求的 CPU 数不是每物理核 CPU 数的整数倍"
    ),
    "NotEnoughCpus": Text("not enough cpus available to satisfy request", "可用 CPU 不足，无法满足绑核请求"),
    "CpuBindPolicyUnsatisfied": Text(
        "insufficient CPUs to satisfy required cpu bind policy {detail}", "剩余 CPU 无法满足绑核策略 {detail}"
    ),
    "MissingNumaResources": Text("node(s) missing NUMA resources", "节点没有 NUMA 资源信息"),
    "InsufficientNumaNodes": Text("node(s) Insufficient NUMA Node resources", "节点的 NUMA 资源不足"),
    "InsufficientNumaResource": Text("Insufficient NUMA {detail}", "NUMA 节点上的 {detail} 不足"),
    "UnsatisfiedNuma": Text("Unsatisfied NUMA {detail}", "没有 NUMA 节点能满足 {detail}"),
    "UnknownNumaPolicy": Text("unknown NUMA topology policy {detail!r}", "未知的 NUMA 拓扑策略 {detail}"),
    "HintMismatch": Text("node(s) didn't satisfy plugin(s) [SchedulingHint]", "节点不在调度提示给出的范围内"),
    "UnreadableAnnotation": Text("{detail}", "无法解析 Pod 的注解：{detail}"),
    "UnalignedNuma": Text("Unaligned NUMA Hint cause {detail}", "各资源的 NUMA 亲和无法对齐：{detail}"),
    NODE_UNKNOWN: Text("node(s) were not known", "节点未知"),
    # Of the pod as a whole.
    NO_NODES: Text("no nodes available to schedule pods", "集群中没有节点"),
    UNREADABLE_POD: Text("the pod's requests cannot be read", "无法解析 Pod 的资源请求"),
    # Why a pod was not attempted.
    "SchedulingGated": Text("Scheduling is blocked due to non-empty scheduling gates", "Pod 带有调度门控，暂不调度"),
    "Deleting": Text("the pod is being deleted", "Pod 正在删除"),
    "Withheld": Text("placed in shadow mode; nothing is written", "影子模式下已决策，不写入集群"),
    "OtherScheduler": Text("it waits for scheduler {detail}", "由调度器 {detail} 负责"),
    "BindingUnderWay": Text("it is placed on {detail}; the binding is under way", "已选定节点 {detail}，正在绑定"),
    "InQueue": Text("it is tried in one of the next cycles", "已在队列中，即将调度"),
    "BackingOff": Text("it was refused and is not tried again before {detail}", "上次调度失败，{detail} 之前不再尝试"),
    "AwaitsChange": Text(
        "nothing has happened that could end what refused it; it is tried again at {detail} at the latest",
        "尚无能消除其失败原因的变化，最迟 {detail} 再次尝试",
    ),
    "AwaitsQuota": Text("it waits for room in its quota", "等待配额空间"),
}
"""Code -> texts."""


def text(code: str, detail: str = "", language: str = "en") -> str:
    """A reason in words; an unknown code (written by a newer release) stands for itself.

    Args:
        language: `en` or `zh`.
    """
    known = REASONS.get(code)
    if known is None:
        return f"{code} ({detail})" if detail else code
    return (known.chinese if language == "zh" else known.english).format(detail=detail)


def summary(nodes: int, refused: Mapping[str, int], language: str = "en") -> str:
    """`0/5 nodes are available: 3 Insufficient cpu, 2 Too many pods.`, as a pod's condition says it.

    Args:
        nodes: how many nodes there were.
        refused: text of a reason -> how many nodes it refused; a node with two reasons counts in both.
    """
    if language == "zh":
        listed = "，".join(sorted(f"{count} 个{words}" for words, count in refused.items()))
        return f"{nodes} 个节点中没有可用节点：{listed}。" if listed else f"{nodes} 个节点中没有可用节点。"
    listed = ", ".join(sorted(f"{count} {words}" for words, count in refused.items()))
    return f"0/{nodes} nodes are available: {listed}." if listed else f"0/{nodes} nodes are available."
