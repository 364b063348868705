"""NodeNUMAResource: allocates CPUs and NUMA zones of nodes to pods, and scores by what is left of them."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.plugins.helper.scheduling_hint_annotation import UNREADABLE_ANNOTATION
from services.scheduler.plugins.node_numa_resource.args import read_numa_args
from services.scheduler.state.cluster_event import ClusterEvent
from shared.kube import resource_names
from shared.kube.system_annotations import RESOURCE_STATUS

_FREE = frozenset(
    (
        ClusterEvent.POD_RELEASED,
        ClusterEvent.ALLOCATABLE,
        ClusterEvent.TOPOLOGY,
    )
)
_OFFER = frozenset(
    (
        ClusterEvent.LABELS,
        ClusterEvent.ANNOTATIONS,
        ClusterEvent.TOPOLOGY,
    )
)

SPEC = PluginSpec(
    name="NodeNUMAResource",
    implementation="services.scheduler.plugins.node_numa_resource.plugin:NodeNUMAResource",
    points=frozenset(
        (
            Point.FILTER,
            Point.SCORE,
        )
    ),
    read_args=read_numa_args,
    reasons={
        "CpuNotInteger": ReasonText("the requested CPUs must be integer", "绑核 Pod 请求的 CPU 必须为整数"),
        "NumaPolicyMismatch": ReasonText("node(s) NUMA Topology policy not match", "节点与 Pod 的 NUMA 拓扑策略不一致"),
        "UnknownNumaPolicy": ReasonText("unknown NUMA topology policy {detail!r}", "未知的 NUMA 拓扑策略 {detail}"),
        "CpuBindPolicyConflict": ReasonText(
            "node(s) cpu bind policy conflicts with pod's required cpu bind policy", "节点的绑核策略与 Pod 要求的冲突"
        ),
        "CpusNotWholeCores": ReasonText(
            "node(s) requested cpus not multiple cpus per core", "请求的 CPU 数不是每物理核 CPU 数的整数倍"
        ),
        "InvalidCpuTopology": ReasonText("node(s) invalid CPU Topology", "节点的 CPU 拓扑无效"),
        "MissingNumaResources": ReasonText("node(s) missing NUMA resources", "节点没有 NUMA 资源信息"),
        "InsufficientNumaNodes": ReasonText("node(s) Insufficient NUMA Node resources", "节点的 NUMA 资源不足"),
        "UnreadableAnnotation": UNREADABLE_ANNOTATION,
        "InsufficientAmplifiedCpu": ReasonText("Insufficient amplified cpu", "节点放大后的 CPU 不足"),
        "NotEnoughCpus": ReasonText("not enough cpus available to satisfy request", "可用 CPU 不足，无法满足绑核请求"),
        "NotWithinReservation": ReasonText(
            "pod has a nominated reservation but cannot be allocated within its NUMA scope",
            "Pod 使用的资源预留中没有满足请求的 CPU 或 NUMA 资源",
        ),
        "CpuBindPolicyUnsatisfied": ReasonText(
            "insufficient CPUs to satisfy required cpu bind policy {detail}", "剩余 CPU 无法满足绑核策略 {detail}"
        ),
        "InsufficientNumaResource": ReasonText("Insufficient NUMA {detail}", "NUMA 节点上的 {detail} 不足"),
        "UnsatisfiedNuma": ReasonText("Unsatisfied NUMA {detail}", "没有 NUMA 节点能满足 {detail}"),
        "UnalignedNuma": ReasonText("Unaligned NUMA Hint cause {detail}", "各资源的 NUMA 亲和无法对齐：{detail}"),
    },
    queueing_hints={
        **dict.fromkeys(
            (
                "CpuNotInteger",
                "NumaPolicyMismatch",
                "UnknownNumaPolicy",
                "CpuBindPolicyConflict",
                "CpusNotWholeCores",
                "InvalidCpuTopology",
                "MissingNumaResources",
                "InsufficientNumaNodes",
            ),
            _OFFER,
        ),
        "UnreadableAnnotation": frozenset(),
        **dict.fromkeys(
            (
                "InsufficientAmplifiedCpu",
                "NotEnoughCpus",
                "NotWithinReservation",
                "CpuBindPolicyUnsatisfied",
                "InsufficientNumaResource",
            ),
            _FREE | _OFFER,
        ),
        # A pod that is added can even out what is left.
        **dict.fromkeys(("UnsatisfiedNuma", "UnalignedNuma"), _FREE | _OFFER | {ClusterEvent.POD_ADDED}),
    },
    reserves=True,
    joins=("DeviceShare",),
    reads=(resource_names.NODE_TOPOLOGIES,),
    annotations=(RESOURCE_STATUS, "scheduling.koordinator.sh/resource-spec"),
    view="nodes",
)
