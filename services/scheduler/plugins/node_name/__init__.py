"""NodeName: a pod that names its node goes to that node only."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.state.cluster_event import ClusterEvent

SPEC = PluginSpec(
    name="NodeName",
    implementation="services.scheduler.plugins.node_name.plugin:NodeName",
    points=frozenset((Point.FILTER,)),
    reasons={
        "NodeNameMismatch": ReasonText("node(s) didn't match the requested node name", "节点名与 Pod 指定的不一致"),
    },
    queueing_hints={
        "NodeNameMismatch": frozenset((ClusterEvent.NODE_ADDED,)),
    },
    node_only=True,
)
