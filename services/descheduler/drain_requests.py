"""Requests of an operator about the drain of a node: a drain is recorded before it is confirmed."""

import logging

import msgspec

from services.descheduler.configuration.migration_in_force import migration_args
from services.descheduler.migration.decide_migration import effective_facts
from services.descheduler.migration.drain import drain_plan
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
            moved = state.migration.moved(command.node)  # before the request: its end forgets the drain
            if not fault and (draft := draft_of(state, command)) is not None:
                await self._runtime.append([draft], now_ns=now_ns)
            await message.respond(msgspec.json.encode(status_of(state, command.node, fault, now_ns, moved)))


def fault_of(state: DeschedulerState, command: DrainCommand) -> str:
    """Returns why a request cannot be met; empty where it can."""
    if command.node not in state.cluster.nodes:
        return f"there is no node {command.node!r}{did_you_mean(command.node, state.cluster.nodes)}"
    if state.configuration is None or migration_args(state.configuration) is None:
        return "no profile of the descheduler's configuration enables MigrationController, which moves pods"
    if command.verb == "cancel" and command.node not in state.migration.drains:
        return f"node {command.node} is not being drained"
    return ""


def draft_of(state: DeschedulerState, command: DrainCommand) -> Draft | None:
    """Returns the event of a request that can be met; None for one that changes nothing."""
    drain = state.migration.drains.get(command.node)
    if command.verb == "start" and drain is None:
        return Draft(DrainRequested(node=command.node, by=command.by, reason=command.reason))
    if command.verb == "cancel" and drain is not None:
        return Draft(
            DrainEnded(node=command.node, moved=state.migration.moved(command.node), remaining={}, by=command.by)
        )
    return None


def status_of(state: DeschedulerState, node: str, fault: str, now_ns: int, moved: int) -> DrainStatus:
    """Returns the pods of a node as its drain has them, or would have.

    Args:
        moved: pods that a drain which just ended had moved.
    """
    args = None if state.configuration is None else migration_args(state.configuration)
    if fault or args is None:
        return DrainStatus(node, fault=fault)
    facts = effective_facts(state)
    plan = drain_plan(state.migration, facts, args, RateLimits(state.migration, facts, args, now_ns), node)
    drain = state.migration.drains.get(node)
    pods = tuple(DrainedPod(each.pod.metadata.key, str(each.step), each.reason) for each in plan)
    return DrainStatus(node, drain is not None, moved if drain is None else state.migration.moved(node), pods)
