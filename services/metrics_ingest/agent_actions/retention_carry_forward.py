"""The events that outlast their partition in `nodes-*`: the numbers by which a repeated action is recognised, node
topologies, and evictions of pods that still run.
"""

from collections.abc import Hashable

from services.metrics_ingest.agent_actions.node_pods_and_actions_state import ActionIngestState, digest_of
from shared.domain.interference import INTERFERED, JOB_PREFIX
from shared.events import RecordedEvent
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import WriterStarted
from shared.events.nodes import (
    AGENT_ACTIONS,
    AgentEvictionRequested,
    BestEffortSuppressed,
    ContainerHooksReported,
    NodeTopologyRemoved,
    NodeTopologyReported,
    PodBurst,
    PodInterfered,
    PodInterferenceEnded,
)
from shared.log.retention_carry_forward import CarryForward, Holds, Kept


def subject(record: RecordedEvent) -> Hashable:
    """Returns an action by its number, the node of a removed topology, or the pod of an eviction."""
    match record.event:
        case (
            BestEffortSuppressed(node=node, boot=boot, number=number)
            | PodBurst(node=node, boot=boot, number=number)
            | AgentEvictionRequested(node=node, boot=boot, number=number)
            | ContainerHooksReported(node=node, boot=boot, number=number)
            | PodInterfered(node=node, boot=boot, number=number)
            | PodInterferenceEnded(node=node, boot=boot, number=number)
            | NodeTopologyReported(node=node, boot=boot, number=number)
        ):
            return node, boot, number
        case NodeTopologyRemoved(node=node):
            return NodeTopologyRemoved, node
        case FieldsDesired(resource=resource, name=name, fields=fields):
            return resource, name, fields
        case ObjectDesired(resource=resource, name=name):
            return resource, name
        case EvictionRequested(pod_uid=uid):
            return EvictionRequested, uid
    return type(record.event)


def holds(state: ActionIngestState, _: Kept) -> Holds:
    """Returns the test of an event by the State: actions among the newest of their agent, topologies in force."""

    def still_holds(record: RecordedEvent) -> bool:
        match record.event:
            case NodeTopologyReported(node=node, boot=boot, number=number) as event:
                return state.topologies.get(node) == digest_of(event) or _is_counted(state, node, boot, number)
            case PodInterfered(node=node, pod_uid=uid, boot=boot, number=number):
                mark = state.interfered.get(node, {}).get(uid)
                in_force = mark is not None and (mark.boot, mark.number) == (boot, number)
                return in_force or _is_counted(state, node, boot, number)
            case FieldsDesired(name=node, patch=patch):
                return (node in state.hinted) == bool(patch["metadata"]["labels"][INTERFERED])
            case ObjectDesired(name=name):
                return name.removeprefix(JOB_PREFIX) in state.pods
            case (
                BestEffortSuppressed(node=node, boot=boot, number=number)
                | PodBurst(node=node, boot=boot, number=number)
                | AgentEvictionRequested(node=node, boot=boot, number=number)
                | ContainerHooksReported(node=node, boot=boot, number=number)
                | PodInterferenceEnded(node=node, boot=boot, number=number)
            ):
                return _is_counted(state, node, boot, number)
            case NodeTopologyRemoved(node=node):
                # A topology that was reported before it may be carried forward for its number.
                return node not in state.topologies and node in state.recorded_actions
            case EvictionRequested(pod_uid=uid):
                return uid in state.pods
        return True

    return still_holds


def _is_counted(state: ActionIngestState, node: str, boot: str, number: int) -> bool:
    recorded = state.recorded_actions.get(node)
    return recorded is not None and recorded.boot == boot and number in recorded.numbers


CARRY_FORWARD = CarryForward(
    kinds=(*AGENT_ACTIONS, NodeTopologyRemoved, EvictionRequested, FieldsDesired, ObjectDesired, WriterStarted),
    subject=subject,
    holds=holds,
)
