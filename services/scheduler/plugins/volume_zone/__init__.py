"""VolumeZone: a bound volume with zone or region labels is used there only."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.watched_api_resources import STORAGE

SPEC = PluginSpec(
    name="VolumeZone",
    implementation="services.scheduler.plugins.volume_zone.plugin:VolumeZone",
    points=frozenset((Point.FILTER,)),
    reasons={
        "VolumeZoneConflict": ReasonText("node(s) had no available volume zone", "节点所在可用区与存储卷不一致"),
    },
    queueing_hints={
        "VolumeZoneConflict": frozenset(
            (
                ClusterEvent.VOLUME,
                ClusterEvent.LABELS,
            )
        ),
    },
    node_only=True,
    reads=tuple(STORAGE),
)
