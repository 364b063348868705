"""NodeAffinity: node selectors and node affinity of a pod."""

from services.scheduler.framework.plugin_spec import Normalize, PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.plugins.node_affinity.args import read_affinity_args
from services.scheduler.state.cluster_event import ClusterEvent

SPEC = PluginSpec(
    name="NodeAffinity",
    implementation="services.scheduler.plugins.node_affinity.plugin:NodeAffinity",
    points=frozenset(
        (
            Point.FILTER,
            Point.SCORE,
        )
    ),
    read_args=read_affinity_args,
    reasons={
        "NodeAffinityMismatch": ReasonText(
            "node(s) didn't match Pod's node affinity/selector", "节点不满足 Pod 的节点选择器或亲和性"
        ),
        "EnforcedNodeAffinityMismatch": ReasonText(
            "node(s) didn't match scheduler-enforced node affinity", "节点不满足调度器附加的节点亲和性"
        ),
    },
    queueing_hints={
        "NodeAffinityMismatch": frozenset((ClusterEvent.LABELS,)),
        "EnforcedNodeAffinityMismatch": frozenset((ClusterEvent.LABELS,)),
    },
    normalize=Normalize.UP,
    node_only=True,
)
