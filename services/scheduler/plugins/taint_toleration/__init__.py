"""TaintToleration: a taint keeps pods away that do not tolerate it."""

from services.scheduler.framework.plugin_spec import Normalize, PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.state.cluster_event import ClusterEvent

SPEC = PluginSpec(
    name="TaintToleration",
    implementation="services.scheduler.plugins.taint_toleration.plugin:TaintToleration",
    points=frozenset(
        (
            Point.FILTER,
            Point.SCORE,
        )
    ),
    reasons={
        "UntoleratedTaint": ReasonText("node(s) had untolerated taint(s)", "节点有 Pod 不容忍的污点"),
    },
    queueing_hints={
        "UntoleratedTaint": frozenset((ClusterEvent.TAINTS,)),
    },
    normalize=Normalize.DOWN,
    node_only=True,
)
