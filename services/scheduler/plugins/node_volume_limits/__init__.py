"""NodeVolumeLimits: a CSI driver attaches a limited number of volumes to a node."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.watched_api_resources import STORAGE

SPEC = PluginSpec(
    name="NodeVolumeLimits",
    implementation="services.scheduler.plugins.node_volume_limits.plugin:NodeVolumeLimits",
    points=frozenset((Point.FILTER,)),
    reasons={
        "TooManyVolumes": ReasonText("node(s) exceed max volume count", "节点可挂载的存储卷数已达上限"),
    },
    queueing_hints={
        "TooManyVolumes": frozenset(
            (
                ClusterEvent.POD_RELEASED,
                ClusterEvent.VOLUME,
            )
        ),
    },
    counts_placements=True,
    counts_removals=True,
    admits_later=True,
    reads=tuple(STORAGE),
)
