"""Coscheduling: the pods of a gang, or of a group of gangs, are placed together or not at all; those of one network
selector near each other.
"""

from services.scheduler.framework.plugin_spec import Normalize, PluginSpec, Point
from services.scheduler.framework.reasons import (
    NETWORK_DOMAIN_TOO_SMALL,
    NETWORK_TOPOLOGY_UNKNOWN,
    START_PLANNED,
    ReasonText,
)
from services.scheduler.plugins.coscheduling.args import UNUSED, read_coscheduling_args
from services.scheduler.state.cluster_event import ClusterEvent
from shared.domain.gang import BIND_COUNT, BIND_GROUP
from shared.kube import resource_names

_CAPACITY = frozenset(
    (
        ClusterEvent.NODE_ADDED,
        ClusterEvent.ALLOCATABLE,
        ClusterEvent.LABELS,
        ClusterEvent.TAINTS,
        ClusterEvent.POD_RELEASED,
        ClusterEvent.METRIC,
        ClusterEvent.POD_GROUP,
    )
)

SPEC = PluginSpec(
    name="Coscheduling",
    implementation="services.scheduler.plugins.coscheduling.plugin:Coscheduling",
    points=frozenset((Point.PERMIT, Point.SCORE)),
    read_args=read_coscheduling_args,
    unused_args=UNUSED,
    reasons={
        "GangUnknown": ReasonText(
            "gang {detail} has no PodGroup, and its pods give no readable minimum; create it, or correct the pods' labels and annotations",
            "Gang {detail} 没有 PodGroup，其 Pod 也未声明可读的最小成员数；请创建 PodGroup，或更正 Pod 的标签与注解",
        ),
        "GangIncomplete": ReasonText("it waits for pods of its gang: {detail}", "等待同一 Gang 的 Pod：{detail}"),
        "GangTimedOut": ReasonText(
            "the node that was held for it was released: other pods of its gang found none in time",
            "为其保留的节点已被释放：同一 Gang 的其他 Pod 未能及时找到节点",
        ),
        NETWORK_DOMAIN_TOO_SMALL: ReasonText("in no {detail}", "所在网络拓扑域不足：{detail}"),
        START_PLANNED: ReasonText("kept for the planned start of {detail}", "已为 {detail} 的计划启动保留"),
        NETWORK_TOPOLOGY_UNKNOWN: ReasonText("in no known network domain: {detail}", "网络拓扑未知：{detail}"),
    },
    queueing_hints={
        **dict.fromkeys(("GangUnknown", "GangIncomplete", "GangTimedOut"), frozenset()),
        NETWORK_TOPOLOGY_UNKNOWN: frozenset((ClusterEvent.POD_GROUP,)),
        START_PLANNED: _CAPACITY,
        NETWORK_DOMAIN_TOO_SMALL: _CAPACITY,
    },
    normalize=Normalize.OWN,
    cross_node=True,
    counts_placements=True,
    counts_removals=True,
    groups_pods=True,
    reads=(resource_names.POD_GROUPS, resource_names.NETWORK_TOPOLOGIES),
    annotations=(*BIND_GROUP, *BIND_COUNT),
)
