"""PodTopologySpread: spreads the pods of a selector evenly over the domains of a topology key."""

from services.scheduler.framework.plugin_spec import Normalize, PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.plugins.pod_topology_spread.args import read_spread_args
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.watched_api_resources import OWNERS, SERVICES

SPEC = PluginSpec(
    name="PodTopologySpread",
    implementation="services.scheduler.plugins.pod_topology_spread.plugin:PodTopologySpread",
    points=frozenset(
        (
            Point.FILTER,
            Point.SCORE,
        )
    ),
    read_args=read_spread_args,
    reasons={
        "TopologyLabelMissing": ReasonText(
            "node(s) didn't match pod topology spread constraints (missing required label)",
            "节点缺少拓扑分布约束所需的标签",
        ),
        "TopologySpreadViolated": ReasonText(
            "node(s) didn't match pod topology spread constraints", "放在该节点会违反 Pod 的拓扑分布约束"
        ),
    },
    queueing_hints={
        "TopologyLabelMissing": frozenset(
            (
                ClusterEvent.LABELS,
                ClusterEvent.WORKLOAD,
            )
        ),
        "TopologySpreadViolated": frozenset(
            (
                ClusterEvent.POD_ADDED,
                ClusterEvent.POD_RELEASED,
                ClusterEvent.POD_CHANGED,
                ClusterEvent.LABELS,
                ClusterEvent.TAINTS,
                ClusterEvent.WORKLOAD,
            )
        ),
    },
    normalize=Normalize.OWN,
    cross_node=True,
    reads=(SERVICES, *OWNERS),
)
