"""What becomes of a deed: recorded, with an eviction as an intent, or refused. Pure."""

from typing import Any

from services.metrics_ingest.actions.state import DeedsState, OnNode, digest_of
from shared.agents.actions import (
    ActionReport,
    BadDeed,
    Burst,
    EvictionRequested,
    Killed,
    PodsRequested,
    Suppressed,
    TopologyReported,
)
from shared.events import Draft, intents
from shared.events.nodes import (
    AgentEvictionRequested,
    BestEffortSuppressed,
    NodeTopologyRemoved,
    NodeTopologyReported,
    PodBurst,
    PodKilled,
)
from shared.kube.instants import SECOND, instant_text
from shared.kube.node_resource_topology import STATED
from shared.kube.quantity import BadQuantity, nanos

KEPT_S = 86_400
"""A deed that is older than this is not recorded any more."""


def recorded(state: DeedsState, told: ActionReport, *, max_clock_skew_s: float, now_ns: int) -> list[Draft]:
    """The events of a deed that is told for the first time.

    What was done is a fact, so it is recorded also when `cluster` does not know the pod, or not yet; an eviction is asked for only
    of a pod that runs on the agent's own node at this moment, under this uid.

    Raises:
        BadDeed: the deed concerns a pod of another node, one that is not there, or another time.
    """
    check_time(told, max_clock_skew_s=max_clock_skew_s, now_ns=now_ns)
    said: dict[str, Any] = {"node": told.node, "boot": told.boot, "number": told.seq, "at_ns": told.at_ns}
    match told.deed:
        case PodsRequested():
            return []
        case Suppressed(policy=policy, cpu_milli=cpu_milli, cpus=cpus):
            return [Draft(BestEffortSuppressed(**said, policy=policy, cpu_milli=cpu_milli, cpus=cpus))]
        case Burst(pod_uid=uid, container=container) as burst:
            pod = pod_of(state, told, uid)
            event = PodBurst(
                **said,
                pod_uid=uid,
                pod=pod.pod if pod else "",
                container=container,
                cfs_quota_us=burst.cfs_quota_us,
                cfs_burst_us=burst.cfs_burst_us,
            )
            return [Draft(event, correlation=uid)]
        case Killed(pod_uid=uid, reason=reason, container=container):
            pod = pod_of(state, told, uid)
            killed = PodKilled(**said, pod_uid=uid, pod=pod.pod if pod else "", reason=reason, container=container)
            return [Draft(killed, correlation=uid)]
        case TopologyReported() as stated:
            return _topology(state, told, stated, said)
        case EvictionRequested(pod_uid=uid, reason=reason):
            pod = pod_of(state, told, uid)
            if pod is None:
                raise BadDeed(told.node, "deed.pod_uid", f"there is no running pod {uid} on this node")
            if pod.static:
                raise BadDeed(told.node, "deed.pod_uid", f"{pod.pod} is a static pod: the API cannot evict it")
            wanted = AgentEvictionRequested(**said, pod_uid=uid, pod=pod.pod, reason=reason)
            asked = intents.EvictionRequested(pod_uid=uid, pod=pod.pod, reason=f"node {told.node}: {reason}")
            return [Draft(wanted, correlation=uid), Draft(asked, correlation=uid)]


def forgotten(state: DeedsState) -> list[Draft]:
    """Take back what was stated of nodes that are gone."""
    return [Draft(NodeTopologyRemoved(node)) for node in state.topologies if not state.has_node(node)]


def _topology(state: DeedsState, told: ActionReport, stated: TopologyReported, said: dict[str, Any]) -> list[Draft]:
    """A topology, unless it says what the last one said, or is of a node that is not there: agents tell again."""
    for name in stated.annotations.keys() - STATED:
        raise BadDeed(told.node, "deed.annotations", f"{name} is no annotation that an agent states")
    for zone in stated.zones:
        for resource, amounts in zone.resources.items():
            try:
                for text in amounts:
                    nanos(text)
            except BadQuantity as error:
                raise BadDeed(told.node, f"deed.zones[{zone.name}].{resource}", str(error)) from error
    event = NodeTopologyReported(
        **said,
        annotations=stated.annotations,
        policy=stated.policy,
        zones={zone.name: zone.resources for zone in stated.zones},
        numa_reservation=stated.numa_reservation,
    )
    if not state.has_node(told.node) or state.topologies.get(told.node) == digest_of(event):
        return []
    return [Draft(event)]


def pod_of(state: DeedsState, told: ActionReport, uid: str) -> OnNode | None:
    """The pod that a deed is about, None when it is not known.

    Raises:
        BadDeed: it runs on another node.
    """
    pod = state.pods.get(uid)
    if pod is not None and pod.node != told.node:
        raise BadDeed(told.node, "deed.pod_uid", f"{pod.pod} runs on {pod.node}")
    return pod


def check_time(told: ActionReport, *, max_clock_skew_s: float, now_ns: int) -> None:
    """Refuse a deed of another time.

    Raises:
        BadDeed: names what was found and what to do.
    """
    late_ns = now_ns - told.at_ns
    if -late_ns > max_clock_skew_s * SECOND:
        ahead_s = -late_ns // SECOND
        raise BadDeed(
            told.node,
            "at_ns",
            f"{instant_text(told.at_ns)} lies {ahead_s} s ahead of our clock, and {max_clock_skew_s:g} s are allowed; set the node's clock",
        )
    if late_ns > KEPT_S * SECOND:
        raise BadDeed(told.node, "at_ns", f"{instant_text(told.at_ns)} lies more than {KEPT_S} s back")
