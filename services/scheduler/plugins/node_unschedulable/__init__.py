"""NodeUnschedulable: cordoned nodes take no new pods."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.state.cluster_event import ClusterEvent

SPEC = PluginSpec(
    name="NodeUnschedulable",
    implementation="services.scheduler.plugins.node_unschedulable.plugin:NodeUnschedulable",
    points=frozenset((Point.FILTER,)),
    reasons={
        "NodeUnschedulable": ReasonText("node(s) were unschedulable", "节点被标记为不可调度"),
    },
    queueing_hints={
        "NodeUnschedulable": frozenset((ClusterEvent.TAINTS,)),
    },
    node_only=True,
)
