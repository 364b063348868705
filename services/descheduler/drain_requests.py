"""Requests of an operator about the drain of a node: a drain is recorded before it is confirmed."""

import logging

import msgspec
from msgspec.structs import replace

from services.descheduler.configuration.migration_in_force import migration_args
from services.descheduler.migration.decide_migration import effective_facts
from services.descheduler.migration.drain import DrainStep, cordon_withdrawn, drain_ended, drain_plan
from services.descheduler.migration.rate_limits import RateLimits
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.bus import Request
from shared.closest_name import did_you_mean
from shared.events import Draft
from shared.events.migration import DrainEnded, DrainRequested
from shared.kube.drain_control import DrainCommand, DrainedPod, DrainStatus
from shared.kube.json_text import read_json
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)


class DrainRequests:
    """Answers requests while this replica writes `descheduling`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: list[Request] = []

    async def receive(self, message: Request) -> None:
        """Takes a request; the descheduler's loop answers it, since it alone appends."""
        self._waiting.append(message)

    async def answer(self) -> None:
        """Answers the requests that have come, and records what they change."""
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            try:
                command = read_json(message.data, DrainCommand)
            except msgspec.DecodeError as error:
                log.warning("a request about a drain cannot be read", extra={"error": str(error)})
                self._runtime.rejections.add(message.subject, str(error))
                continue
            state: DeschedulerState = self._runtime.state
            now_ns = self._runtime.now_ns()
            fault = fault_of(state, command)
            found = status_of(state, command.node, fault, now_ns)
            if not fault and (event := event_of(state, command, found)) is not None:
                await self._runtime.append([Draft(event), *withdrawn(state, event)], now_ns=now_ns)
                # The end of a drain forgets it: what it did is known only before.
                is_end = isinstance(event, DrainEnded)
                found = ended_early(found) if is_end else status_of(state, command.node, "", now_ns)
            await message.respond(msgspec.json.encode(found))


def fault_of(state: DeschedulerState, command: DrainCommand) -> str:
    """Returns why a request cannot be met; empty where it can."""
    if command.node not in state.cluster.nodes:
        return f"there is no node {command.node!r}{did_you_mean(command.node, state.cluster.nodes)}"
    if state.configuration is None or migration_args(state.configuration) is None:
        return "no profile of the descheduler's configuration enables MigrationController, which moves pods"
    if command.verb == "cancel" and command.node not in state.migration.drains:
        return f"node {command.node} is not being drained"
    return ""


def event_of(state: DeschedulerState, command: DrainCommand, found: DrainStatus) -> DrainRequested | DrainEnded | None:
    """Returns the event of a request that can be met; None for one that changes nothing.

    Args:
        found: the node before the request. A drain that would end at once, since the node is cordoned and nothing on
            it moves, does not begin. One whose node was uncordoned meanwhile, and which waits, begins anew.
    """
    drain = state.migration.drains.get(command.node)
    waits_for_cordon = drain is not None and drain.cordons and not found.cordoned
    if command.verb == "start" and (waits_for_cordon or not (found.draining or is_drained(found))):
        return DrainRequested(node=command.node, by=command.by, reason=command.reason)
    if command.verb == "cancel" and found.draining:
        left = ended_early(found).pods
        remaining = {each.pod: each.reason for each in left if each.step == DrainStep.STAYS}
        moving = tuple(each.pod for each in left if each.step == DrainStep.MOVES)
        return drain_ended(
            state.migration,
            command.node,
            remaining,
            by=command.by,
            moving=moving,
            not_cordoned=not found.cordoned,
        )
    return None


def withdrawn(state: DeschedulerState, event: DrainRequested | DrainEnded) -> list[Draft]:
    """Returns the withdrawal of a cordon that the drain desires and the node does not have, once the drain ends: the
    gateway would write it whenever it can.

    Args:
        state: before the event.
    """
    drain = state.migration.drains.get(event.node)
    if isinstance(event, DrainEnded) and event.not_cordoned and drain is not None and drain.cordons:
        return [Draft(cordon_withdrawn(event.node))]
    return []


def is_drained(found: DrainStatus) -> bool:
    """Reports whether a drain has nothing to do on a node."""
    return found.cordoned and all(each.step == DrainStep.STAYS for each in found.pods)


def ended_early(found: DrainStatus) -> DrainStatus:
    """Returns a drain after its end by an operator: jobs that began go on, and all other pods stay."""
    pods = tuple(
        each
        if each.step in (DrainStep.MOVES, DrainStep.STAYS)
        else DrainedPod(each.pod, str(DrainStep.STAYS), each.reason or "its turn had not come")
        for each in found.pods
    )
    return replace(found, draining=False, pods=pods)


def status_of(state: DeschedulerState, node: str, fault: str, now_ns: int) -> DrainStatus:
    """Returns the pods of a node as its drain has them, or would have."""
    args = None if state.configuration is None else migration_args(state.configuration)
    if fault or args is None:
        return DrainStatus(node, fault=fault)
    facts = effective_facts(state)
    plan = drain_plan(state.migration, facts, args, RateLimits(state.migration, facts, args, now_ns), node)
    return DrainStatus(
        node,
        draining=node in state.migration.drains,
        moved=state.migration.moved(node),
        pods=tuple(DrainedPod(each.pod.metadata.key, str(each.step), each.reason) for each in plan),
        evicted=state.migration.evicted_without_successor(node),
        cordoned=bool(state.cluster.nodes[node].spec.unschedulable),
    )
