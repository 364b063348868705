"""DeviceShare: allocates GPUs, RDMA cards and FPGAs of nodes to pods, in parts or as wholes, and scores by what is left."""

from services.scheduler.framework.plugin_spec import Normalize, PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.plugins.device_share.args import UNUSED_ARGS, read_device_args
from services.scheduler.plugins.device_share.device_plugin_annotations import NAMES as DEVICE_PLUGIN_NAMES
from services.scheduler.plugins.helper.scheduling_hint_annotation import UNREADABLE_ANNOTATION
from services.scheduler.state.cluster_event import ClusterEvent
from shared.kube import resource_names
from shared.kube.system_annotations import DEVICE_ALLOCATED

_FREE = frozenset((ClusterEvent.POD_RELEASED, ClusterEvent.TOPOLOGY, ClusterEvent.LABELS, ClusterEvent.RESERVATION))
_OFFER = frozenset((ClusterEvent.TOPOLOGY, ClusterEvent.LABELS))

SPEC = PluginSpec(
    name="DeviceShare",
    implementation="services.scheduler.plugins.device_share.plugin:DeviceShare",
    points=frozenset((Point.FILTER, Point.SCORE)),
    read_args=read_device_args,
    unused_args=UNUSED_ARGS,
    reasons={
        "InvalidDeviceRequests": ReasonText(
            "invalid resource device requests: [{detail}]", "设备资源请求的组合无效：[{detail}]"
        ),
        "InvalidDeviceUnit": ReasonText("invalid resource unit {detail}", "设备资源的数量无效：{detail}"),
        "UnreadableAnnotation": UNREADABLE_ANNOTATION,
        "NoGpuTemplate": ReasonText("no matched GPU shared resource template", "没有匹配的 GPU 共享资源模板"),
        "GpuIsolationMissing": ReasonText(
            "GPUIsolationProviderHAMICore not found on the node", "节点没有 Pod 要求的 GPU 隔离组件"
        ),
        "GpuNotShared": ReasonText("model {detail} does not support GPU Share", "型号 {detail} 不支持 GPU 共享"),
        "InsufficientDevices": ReasonText("Insufficient {detail} devices", "{detail} 设备不足"),
        "InsufficientVirtualFunctions": ReasonText("Insufficient {detail} VirtualFunctions", "{detail} 的 VF 不足"),
        "InsufficientGpus": ReasonText("Insufficient GPU Devices", "GPU 设备不足"),
        "InsufficientScopedGpus": ReasonText(
            "Insufficient Topology Scoped GPU Devices", "满足拓扑范围要求的 GPU 设备不足"
        ),
        "InsufficientPartitionedGpus": ReasonText("Insufficient Partitioned GPU Devices", "没有空闲的 GPU 分区"),
        "InsufficientNumaDevices": ReasonText("Insufficient NUMA Scoped Devices", "NUMA 节点内的设备不足"),
        "PartitionTableMissing": ReasonText("node(s) missing GPU Partition Table", "节点没有 GPU 分区表"),
        "GpuCountUnsupported": ReasonText(
            "node(s) Unsupported number of GPU requests", "节点的 GPU 分区表不支持所请求的 GPU 数量"
        ),
        "MultiSharedGpu": ReasonText("node(s) Unsupported Multi-Shared GPU", "拓扑范围不支持跨多卡的共享 GPU"),
        "GpuTopologyMissing": ReasonText("node(s) missing GPU topology", "节点没有上报 GPU 拓扑"),
        "JointAllocationViolated": ReasonText(
            "node(s) Device Joint-Allocate rules violation", "节点无法满足设备联合分配的要求"
        ),
        "DevicePluginRefuses": ReasonText(
            "the device plugin of the node's vendor cannot give the devices: {detail}",
            "厂商设备插件无法分配设备：{detail}",
        ),
        "DevicesInReservation": ReasonText("Reservation(s) {detail}", "资源预留中：{detail}"),
    },
    queueing_hints={
        **dict.fromkeys(
            (
                "GpuIsolationMissing",
                "GpuNotShared",
                "InsufficientVirtualFunctions",
                "PartitionTableMissing",
                "GpuCountUnsupported",
                "MultiSharedGpu",
                "GpuTopologyMissing",
                "DevicePluginRefuses",
            ),
            _OFFER,
        ),
        "NoGpuTemplate": _OFFER | {ClusterEvent.GPU_TEMPLATES},
        **dict.fromkeys(("InvalidDeviceRequests", "InvalidDeviceUnit", "UnreadableAnnotation"), frozenset()),
        **dict.fromkeys(
            (
                "InsufficientDevices",
                "InsufficientGpus",
                "InsufficientScopedGpus",
                "InsufficientPartitionedGpus",
                "InsufficientNumaDevices",
                "JointAllocationViolated",
                "DevicesInReservation",
            ),
            _FREE,
        ),
    },
    normalize=Normalize.UP,
    reserves=True,
    joins=("NodeNUMAResource",),
    reads=(resource_names.DEVICES,),
    annotations=(DEVICE_ALLOCATED, *DEVICE_PLUGIN_NAMES),
    view="nodes",
)
