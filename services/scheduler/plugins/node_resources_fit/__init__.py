"""NodeResourcesFit: requests must fit into the free resources of a node; scores by allocation."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.plugins.node_resources_fit.args import read_fit_args
from services.scheduler.state.cluster_event import ClusterEvent

_FREE = frozenset(
    (
        ClusterEvent.POD_RELEASED,
        ClusterEvent.ALLOCATABLE,
    )
)

SPEC = PluginSpec(
    name="NodeResourcesFit",
    implementation="services.scheduler.plugins.node_resources_fit.plugin:NodeResourcesFit",
    points=frozenset(
        (
            Point.FILTER,
            Point.SCORE,
        )
    ),
    read_args=read_fit_args,
    reasons={
        "TooManyPods": ReasonText("Too many pods", "节点上的 Pod 数已达上限"),
        "InsufficientResource": ReasonText("Insufficient {detail}", "{detail} 不足"),
    },
    queueing_hints={
        **dict.fromkeys(("TooManyPods", "InsufficientResource"), _FREE),
    },
    fit_term=True,
)
