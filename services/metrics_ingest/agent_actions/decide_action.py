"""Decides on an action of a node agent: record it, turn an eviction into an intent, or reject it. Pure."""

from collections.abc import Iterable
from typing import Any

from services.metrics_ingest.agent_actions.interfered_pods import ended_events, interfered_events
from services.metrics_ingest.agent_actions.node_pods_and_actions_state import ActionIngestState, digest_of
from services.metrics_ingest.agent_actions.pod_of_action import pod_of
from shared.agents.actions import (
    ActionReport,
    BadAction,
    Burst,
    ContainerHooks,
    EvictionRequested,
    HooksReported,
    Interfered,
    InterferenceEnded,
    PodsRequested,
    Suppressed,
    TopologyReported,
)
from shared.events import Draft, intents
from shared.events.nodes import (
    AgentEvictionRequested,
    BestEffortSuppressed,
    ContainerHooksReported,
    HookedContainer,
    NodeTopologyRemoved,
    NodeTopologyReported,
    PodBurst,
)
from shared.kube.instants import SECOND, instant_text
from shared.kube.node_resource_topology import REPORTED_ANNOTATIONS
from shared.kube.quantity import BadQuantity, nanos

KEPT_S = 86_400
"""Older actions are rejected."""


def action_events(
    state: ActionIngestState, report: ActionReport, *, max_clock_skew_s: float, now_ns: int
) -> list[Draft]:
    """Returns the events of an action that was not recorded before.

    Something that was done is a fact, so it is recorded also when `cluster` does not have the pod, or not yet. An
    eviction is requested only of a pod that runs on the agent's own node at this moment, under this uid. Faulty records
    of hooks are left out (`checked_records`).

    Raises:
        BadAction: the action concerns a pod of another node, one that is not there, or another time.
    """
    check_time(report, max_clock_skew_s=max_clock_skew_s, now_ns=now_ns)
    fields: dict[str, Any] = {"node": report.node, "boot": report.boot, "number": report.seq, "at_ns": report.at_ns}
    match report.action:
        case PodsRequested():
            return []
        case Suppressed(policy=policy, cpu_milli=cpu_milli, cpus=cpus):
            return [Draft(BestEffortSuppressed(**fields, policy=policy, cpu_milli=cpu_milli, cpus=cpus))]
        case Burst(pod_uid=uid, container=container) as burst:
            pod = pod_of(state, report, uid)
            event = PodBurst(
                **fields,
                pod_uid=uid,
                pod=pod.pod if pod else "",
                container=container,
                cfs_quota_us=burst.cfs_quota_us,
                cfs_burst_us=burst.cfs_burst_us,
            )
            return [Draft(event, correlation=uid)]
        case TopologyReported() as reported:
            return _topology_events(state, report, reported, fields)
        case HooksReported(containers=containers):
            hooked, faulty = checked_records(state, report, containers)
            if not hooked:
                raise faulty[0]
            return [Draft(ContainerHooksReported(**fields, containers=hooked))]
        case Interfered() as found:
            return interfered_events(state, report, found, fields)
        case InterferenceEnded(pod_uid=uid, reason=reason):
            return ended_events(state, report, uid, reason, fields)
        case EvictionRequested(pod_uid=uid, reason=reason):
            pod = pod_of(state, report, uid)
            if pod is None:
                raise BadAction(report.node, "action.pod_uid", f"there is no running pod {uid} on this node")
            if pod.static:
                raise BadAction(report.node, "action.pod_uid", f"{pod.pod} is a static pod: the API cannot evict it")
            requested = AgentEvictionRequested(**fields, pod_uid=uid, pod=pod.pod, reason=reason)
            intent = intents.EvictionRequested(pod_uid=uid, pod=pod.pod, reason=f"node {report.node}: {reason}")
            return [Draft(requested, correlation=uid), Draft(intent, correlation=uid)]


def removed_topologies(state: ActionIngestState) -> list[Draft]:
    """Returns the removal of each reported topology whose node is no longer in the cluster."""
    return [Draft(NodeTopologyRemoved(node)) for node in state.topologies if not state.has_node(node)]


def checked_records(
    state: ActionIngestState, report: ActionReport, containers: Iterable[ContainerHooks]
) -> tuple[tuple[HookedContainer, ...], tuple[BadAction, ...]]:
    """Returns the records of hooks that are believed, and what is wrong with each of the others."""
    hooked, faulty = [], []
    for each in containers:
        try:
            hooked.append(_hooked(state, report, each))
        except BadAction as error:
            faulty.append(error)
    return tuple(hooked), tuple(faulty)


def _hooked(state: ActionIngestState, report: ActionReport, found: ContainerHooks) -> HookedContainer:
    """Returns the record of one container.

    Raises:
        BadAction: its pod runs on another node, or what it reports contradicts itself.
    """
    place = f"action.containers[{found.container_id}]"
    pod = pod_of(state, report, found.pod_uid, f"{place}.pod_uid")
    if found.after_ms is not None and found.state != "repaired":
        reason = f"is {found.after_ms} for the state {found.state}"
        raise BadAction(report.node, f"{place}.after_ms", reason)
    return HookedContainer(
        container_id=found.container_id,
        pod_uid=found.pod_uid,
        pod=pod.pod if pod else found.pod,
        container=found.container,
        state=found.state,
        at_ns=found.at_ns,
        route=found.route,
        hooks=found.hooks,
        failed=found.failed,
        after_ms=found.after_ms,
    )


def _topology_events(
    state: ActionIngestState, report: ActionReport, reported: TopologyReported, fields: dict[str, Any]
) -> list[Draft]:
    """Returns the event of a topology that differs from the last recorded one.

    Nothing for a node that `cluster` does not have.

    Agents repeat their topology, so one that came before its node is recorded later.
    """
    for name in reported.annotations.keys() - REPORTED_ANNOTATIONS:
        raise BadAction(report.node, "action.annotations", f"{name} is no annotation that an agent reports")
    for zone in reported.zones:
        for resource, amounts in zone.resources.items():
            try:
                for text in amounts:
                    nanos(text)
            except BadQuantity as error:
                raise BadAction(report.node, f"action.zones[{zone.name}].{resource}", str(error)) from error
    event = NodeTopologyReported(
        **fields,
        annotations=reported.annotations,
        policy=reported.policy,
        zones={zone.name: zone.resources for zone in reported.zones},
        numa_reservation=reported.numa_reservation,
    )
    if not state.has_node(report.node) or state.topologies.get(report.node) == digest_of(event):
        return []
    return [Draft(event)]


def check_time(report: ActionReport, *, max_clock_skew_s: float, now_ns: int) -> None:
    """Rejects an action whose time is too far ahead of our clock, or too old.

    Raises:
        BadAction: names the time and what to do.
    """
    late_ns = now_ns - report.at_ns
    if -late_ns > max_clock_skew_s * SECOND:
        ahead_s = -late_ns // SECOND
        raise BadAction(
            report.node,
            "at_ns",
            f"{instant_text(report.at_ns)} lies {ahead_s} s ahead of our clock, and {max_clock_skew_s:g} s are allowed; set the node's clock",
        )
    if late_ns > KEPT_S * SECOND:
        raise BadAction(report.node, "at_ns", f"{instant_text(report.at_ns)} lies more than {KEPT_S} s back")
