"""VolumeBinding: nodes from which the volumes of a pod can be reached or provisioned."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.plugins.volume_binding.args import UNUSED_ARGS, read_volume_binding_args
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.watched_api_resources import STORAGE

_STORAGE = frozenset(
    (
        ClusterEvent.VOLUME,
        ClusterEvent.LABELS,
    )
)

SPEC = PluginSpec(
    name="VolumeBinding",
    implementation="services.scheduler.plugins.volume_binding.plugin:VolumeBinding",
    points=frozenset((Point.FILTER, Point.PRE_BIND)),
    read_args=read_volume_binding_args,
    unused_args=UNUSED_ARGS,
    reasons={
        "VolumeNodeConflict": ReasonText(
            "node(s) didn't match PersistentVolume's node affinity", "节点不满足持久卷的节点亲和性"
        ),
        "NoVolumeToBind": ReasonText(
            "node(s) didn't find available persistent volumes to bind", "节点没有可绑定的持久卷"
        ),
        "NoStorageLeft": ReasonText("node(s) did not have enough free storage", "节点可用的存储容量不足"),
        "VolumeMissing": ReasonText(
            "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)", "有 PVC 绑定的 PV 不存在"
        ),
        "ClaimMissing": ReasonText('persistentvolumeclaim "{detail}" not found', "PVC {detail} 不存在"),
        "ClaimLost": ReasonText(
            'persistentvolumeclaim "{detail}" bound to non-existent persistentvolume', "PVC {detail} 绑定的 PV 已不存在"
        ),
        "ClaimDeleting": ReasonText('persistentvolumeclaim "{detail}" is being deleted', "PVC {detail} 正在删除"),
        "ClaimUnbound": ReasonText("pod has unbound immediate PersistentVolumeClaims", "Pod 有未绑定的立即绑定型 PVC"),
        # Recorded by releases that did not hold the node meanwhile.
        "VolumesPending": ReasonText(
            "node(s) wait for the pod's volumes to be bound", "已选定节点，等待 Pod 的存储卷完成绑定"
        ),
        "VolumesNotBound": ReasonText(
            "the node held for the pod was released: its volumes were not bound",
            "为 Pod 保留的节点已释放：存储卷未能绑定",
        ),
    },
    queueing_hints={
        **dict.fromkeys(
            (
                "VolumeNodeConflict",
                "NoVolumeToBind",
                "NoStorageLeft",
                "VolumeMissing",
                "ClaimMissing",
                "ClaimLost",
                "ClaimDeleting",
                "ClaimUnbound",
                "VolumesPending",
                "VolumesNotBound",
            ),
            _STORAGE,
        ),
    },
    node_only=True,
    reads=tuple(STORAGE),
)
