"""InterPodAffinity: affinity and anti-affinity between pods, by the domains of a topology key."""

from services.scheduler.framework.plugin_spec import Normalize, PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.plugins.inter_pod_affinity.args import read_inter_pod_args
from services.scheduler.state.cluster_event import ClusterEvent

_POD_ADDED = frozenset(
    (
        ClusterEvent.POD_ADDED,
        ClusterEvent.POD_CHANGED,
        ClusterEvent.LABELS,
        ClusterEvent.NAMESPACE,
    )
)
_POD_REMOVED = frozenset(
    (
        ClusterEvent.POD_RELEASED,
        ClusterEvent.POD_CHANGED,
        ClusterEvent.LABELS,
        ClusterEvent.NAMESPACE,
    )
)

SPEC = PluginSpec(
    name="InterPodAffinity",
    implementation="services.scheduler.plugins.inter_pod_affinity.plugin:InterPodAffinity",
    points=frozenset(
        (
            Point.FILTER,
            Point.SCORE,
        )
    ),
    read_args=read_inter_pod_args,
    reasons={
        "PodAffinityMismatch": ReasonText("node(s) didn't match pod affinity rules", "节点不满足 Pod 间亲和性规则"),
        "PodAntiAffinityMismatch": ReasonText(
            "node(s) didn't match pod anti-affinity rules", "节点不满足 Pod 间反亲和性规则"
        ),
        "ExistingPodsAntiAffinity": ReasonText(
            "node(s) didn't satisfy existing pods anti-affinity rules", "与节点所在拓扑域内已有 Pod 的反亲和性规则冲突"
        ),
    },
    queueing_hints={
        "PodAffinityMismatch": _POD_ADDED,
        "PodAntiAffinityMismatch": _POD_REMOVED,
        "ExistingPodsAntiAffinity": _POD_REMOVED,
    },
    normalize=Normalize.OWN,
    cross_node=True,
    counts_placements=True,
    counts_removals=True,
    reads=("namespaces",),
)
