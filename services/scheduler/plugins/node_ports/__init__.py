"""NodePorts: host ports are used by one pod of a node."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.state.cluster_event import ClusterEvent

SPEC = PluginSpec(
    name="NodePorts",
    implementation="services.scheduler.plugins.node_ports.plugin:NodePorts",
    points=frozenset((Point.FILTER,)),
    reasons={
        "HostPortTaken": ReasonText(
            "node(s) didn't have free ports for the requested pod ports", "Pod 要求的主机端口已被占用"
        ),
    },
    queueing_hints={
        "HostPortTaken": frozenset((ClusterEvent.POD_RELEASED,)),
    },
)
