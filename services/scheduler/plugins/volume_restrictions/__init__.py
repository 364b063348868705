"""VolumeRestrictions: disks written by one node at a time, and claims used by one pod at a time."""

from services.scheduler.framework.plugin_spec import Normalize, PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.watched_api_resources import STORAGE

SPEC = PluginSpec(
    name="VolumeRestrictions",
    implementation="services.scheduler.plugins.volume_restrictions.plugin:VolumeRestrictions",
    points=frozenset((Point.FILTER,)),
    reasons={
        "DiskConflict": ReasonText("node(s) had no available disk", "磁盘已被节点上的其他 Pod 独占"),
        "ClaimInUse": ReasonText(
            "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",
            "ReadWriteOncePod 的 PVC 已被其他 Pod 使用",
        ),
        "ClaimOnOtherNode": ReasonText(
            "node(s) other than the one where the volume of a shared PersistentVolumeClaim is being made",
            "共享的 PVC 正在另一节点上创建存储卷",
        ),
    },
    queueing_hints={
        **dict.fromkeys(
            ("DiskConflict", "ClaimInUse", "ClaimOnOtherNode"),
            frozenset(
                (
                    ClusterEvent.POD_RELEASED,
                    ClusterEvent.VOLUME,
                )
            ),
        ),
    },
    normalize=Normalize.OWN,
    cross_node=True,
    counts_placements=True,
    counts_removals=True,
    reads=tuple(STORAGE),
)
