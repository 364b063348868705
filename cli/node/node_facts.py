"""Recorded facts of one node, read once for `koord why node` and `koord why slowdown`."""

from collections.abc import Collection
from typing import NamedTuple

from cli.node.agent_actions import actions_of
from cli.node.drains_of_node import drains_of
from cli.node.high_load_that_stays import unrelieved_lines
from cli.node.ignored_reports import ignored_reports_of
from cli.node.overcommitment_in_force import overcommitment_of
from cli.node.usage_reports import UsageReport, usage_reports
from cli.scheduling.recorded_state import scheduler_state
from cli.simulated_cluster import is_simulated
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    DesiredStateApplied,
    DesiredStateFailed,
    DesiredStateRejected,
    EvictionFailed,
    EvictionPaused,
    EvictionRejected,
    EvictionSuppressed,
    MissingPermission,
    NodeDeleted,
    NodeObserved,
    PodEvicted,
)
from shared.events.intents import ObjectDesired
from shared.events.nodes import BestEffortSuppressed
from shared.events.slo import NodeOvercommitted, NodeReportsIgnored, OvercommitmentFrozen, OvercommitmentResumed
from shared.kube.node import Node
from shared.kube.resource_names import NODE_SLOS
from shared.log.admin.newest_events import newest, newest_of_keys
from shared.log.reader import LogReader

MOST = 200
"""Newest observations and actions of the node that are read."""

EVICTIONS: tuple[type[Event], ...] = (
    EvictionPaused,
    PodEvicted,
    EvictionRejected,
    EvictionFailed,
    EvictionSuppressed,
)
WRITES: tuple[type[Event], ...] = (DesiredStateApplied, DesiredStateRejected, DesiredStateFailed, MissingPermission)


class NodeFacts(NamedTuple):
    """Recorded facts of a node.

    Attributes:
        pods: that are on it, or placed there.
        observed: NodeObserved and NodeDeleted, oldest first.
        decisions: its newest NodeOvercommitted, oldest first. frozen: while overcommitment is frozen.
        reports: its newest usage report; actions: of its agent; suppressed: the newest BestEffortSuppressed.
        evictions: `namespace/name` -> the newest event about the eviction of one of its pods.
        write: the newest outcome of a write to the node or its objects; None where it is not recorded.
        slo: the newest NodeSLO that the SLO controller desired; None without one.
        overcommitment: whether it is on for the node.
        simulated: the cluster has no kubectl.
        drains: newest requests and ends of its drains, oldest first.
        unrelieved: lines of the descheduler's plugins that moved no pod from it, although its load was high.
    """

    name: str
    view: SchedulerState
    node: Node
    pods: tuple[PodRecord, ...]
    observed: tuple[RecordedEvent, ...]
    decisions: tuple[RecordedEvent, ...]
    frozen: RecordedEvent | None
    ignored: NodeReportsIgnored | None
    reports: tuple[UsageReport, ...]
    actions: tuple[RecordedEvent, ...]
    suppressed: RecordedEvent | None
    evictions: dict[str, RecordedEvent]
    write: RecordedEvent | None
    slo: RecordedEvent | None
    overcommitment: str = ""
    simulated: bool = False
    drains: tuple[RecordedEvent, ...] = ()
    unrelieved: tuple[str, ...] = ()


async def node_facts(log: LogReader, name: str) -> NodeFacts:
    """Reads the facts of a node.

    Raises:
        KoordError: the log has no node of this name, or it was deleted.
    """
    view = await scheduler_state(log)
    observed = await _of_key(log, "cluster", name, (NodeObserved, NodeDeleted))
    if name not in view.nodes:
        if observed and isinstance(observed[-1].event, NodeDeleted):
            raise KoordError(f"node {name} was deleted ({observed[-1].context}/{observed[-1].seq})")
        raise KoordError(
            f"there is no node {name!r}{did_you_mean(name, view.nodes)}; `koord get nodes` shows those there are"
        )
    pods = tuple(each for each in view.pods.values() if not each.ended and each.node_or_placement() == name)
    has_slo = "slo" in await log.contexts()
    desired = await _of_key(log, "slo", name, (ObjectDesired,), 20) if has_slo else []
    return NodeFacts(
        name,
        view,
        view.nodes[name].node,
        tuple(sorted(pods, key=lambda each: each.name)),
        tuple(observed),
        tuple(await _of_key(log, "slo", name, (NodeOvercommitted,), 10) if has_slo else ()),
        await _frozen(log) if has_slo else None,
        await ignored_reports_of(log, name) if has_slo else None,
        tuple(await usage_reports(log, name, newest=1)),
        tuple(await actions_of(log, name, newest=MOST)),
        await _suppressed(log, name),
        await _evictions(log, [each.name for each in pods]),
        next(iter((await _of_key(log, "cluster", name, WRITES, 1))[-1:]), None),
        next((each for each in reversed(desired) if getattr(each.event, "resource", "") == NODE_SLOS), None),
        await overcommitment_of(log.database, view.nodes[name].node.metadata),
        await is_simulated(log.database),
        await drains_of(log, name),
        await unrelieved_lines(log, name),
    )


async def _of_key(
    log: LogReader, context: str, key: str, kinds: Collection[type[Event]], count: int = MOST
) -> list[RecordedEvent]:
    """Returns the newest events of these types with a key, oldest first."""
    return [each.record for each in reversed(await newest(log.database, context, list(kinds), count, key=key))]


async def _frozen(log: LogReader) -> RecordedEvent | None:
    found = await _of_key(log, "slo", OvercommitmentFrozen.KEY, (OvercommitmentFrozen, OvercommitmentResumed), 1)
    return found[0] if found and isinstance(found[0].event, OvercommitmentFrozen) else None


async def _suppressed(log: LogReader, node: str) -> RecordedEvent | None:
    found = [
        each
        for context in await log.contexts()
        if context.startswith("nodes-")
        for each in await _of_key(log, context, node, (BestEffortSuppressed,), 1)
    ]
    return found[0] if found else None


async def _evictions(log: LogReader, pods: Collection[str]) -> dict[str, RecordedEvent]:
    """Returns the newest event about an eviction of each of these pods that has one."""
    found = await newest_of_keys(log.database, "cluster", EVICTIONS, pods)
    return {each.record.event.key: each.record for each in found}
