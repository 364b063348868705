"""`koord why node`: why a node takes no or few pods, and why its batch resources are what they are."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from cli.node.agent_actions import action_text
from cli.node.drains_of_node import cordoned, last_drain, waiting_for_cordon
from cli.node.ignored_reports import describe_ignored, remedy_of
from cli.node.ignored_settings_of_node import ignored_settings_of_node
from cli.node.node_facts import NodeFacts, node_facts
from cli.node.node_steps import NodeStep, node_steps
from cli.node.usage_reports import usage_text
from cli.scheduling.answer_from_log import answer
from cli.simulated_cluster import edit_advice
from cli.terminal import name_completion
from cli.terminal.amounts import human_amount, human_amounts, readable_amounts
from cli.terminal.durations import age, instant_of
from cli.terminal.object_name import cluster_name
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format
from services.scheduler.explain.load_rules_in_force import load_rules
from services.scheduler.explain.requested_on_node import requested_on
from services.scheduler.explain.waiting_order_config import rules_in_force
from services.scheduler.explain.waiting_pods import WaitingPod, waiting_pods
from services.scheduler.framework.config.decision_settings import in_force
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import closing_label
from services.slo_controller.overcommit.explain import explain as steps_of
from shared.events.cluster import DesiredStateApplied, EvictionPaused, NodeObserved
from shared.events.slo import NodeOvercommitted
from shared.kube.instants import SECOND, instant_text
from shared.kube.node import Node
from shared.log.reader import LogReader

FULL_PERCENT = 95
"""Share of allocatable from which on a resource counts as requested in full."""
SILENT_REPORTS = 3
MOST_STEPS = 12
CLOSED = ("NoSchedule", "NoExecute")
NOT_TRIED = frozenset(("OtherScheduler", "SchedulingGated", "BindingUnderWay", "PlacementHeld"))
"""Codes of waiting pods that need no capacity of a node at present."""


class NodeReason(msgspec.Struct, frozen=True):
    """Something that keeps pods from a node.

    Attributes:
        effect: `all`: from every pod; `some`: from pods of a kind, or beyond an amount.
        since: instant; empty where the log does not have it. event: `context/seq`; empty where it follows from several.
        do: what ends it; empty where nothing needs to be done.
    """

    effect: str
    since: str
    event: str
    text: str
    do: str = ""


class NodeAnswer(msgspec.Struct, frozen=True):
    """Why a node takes pods or none, and has the batch resources that it has.

    Attributes:
        state: `closed`, `limited` or `open`.
        last_placed: instant of our newest placement on it; empty without one.
        allocatable, requested: resource -> amount, cpu in milli-cores, memory in bytes; requests as the scheduler
            counts them, with what Reservations hold.
        waiting: pods without a node, in the whole cluster; waiting_reservations: Reservations without one.
        batch: why batch and mid resources are what they are.
        evictions: why the descheduler moved no pod from it, where its load was high; a drain that waits for
            its cordon; pods of the node whose eviction waits, and requests of its agent.
        unknown: what the log does not have.
        steps: recorded events, oldest first.
        ignored: labels and annotations, and fields of them, that have no effect, each with what counts instead or what
            is meant: they cannot be read, are misspelt or unknown.
    """

    node: str
    state: str
    summary: str
    pods: int
    last_placed: str
    allocatable: dict[str, int]
    requested: dict[str, int]
    usage: str
    waiting: int
    reasons: tuple[NodeReason, ...]
    batch: tuple[str, ...]
    evictions: tuple[str, ...]
    unknown: tuple[str, ...]
    steps: tuple[NodeStep, ...]
    ignored: tuple[str, ...] = ()
    waiting_reservations: int = 0


@click.command
@cluster_name(name_completion.nodes)
@output_option
@folder_option
def node(*, name: str, output: Format, folder: Path) -> None:
    """Explain why a node takes no or few pods, and why its batch resources are what they are.

    From recorded events, with times: cordons, taints, requests, measured load, ignored or missing reports, suppression,
    evictions that wait. It names what the log does not have.
    """
    answer(folder, output, lambda log: _explained(log, name), _lines)


async def _explained(log: LogReader, name: str) -> NodeAnswer:
    return explain_node(await node_facts(log, name), time.time_ns())


def explain_node(facts: NodeFacts, now_ns: int) -> NodeAnswer:
    """Explains a node from its recorded facts."""
    allocatable = readable_amounts(facts.node.status.allocatable)
    believes_annotations = in_force(facts.view.config_settings).believes_annotations
    requested = requested_on(facts.view, facts.node, facts.pods, believes_annotations=believes_annotations)
    queue = waiting_pods(facts.view, rules_in_force(facts.view), now_ns)
    reasons = (
        *_of_object(facts),
        *_of_requests(facts, allocatable, requested),
        *_of_waiting(queue, allocatable, requested),
        *_of_load(facts, allocatable, now_ns),
    )
    reservations = sum(each.pod_class.reserves for each in queue)
    waiting = len(queue) - reservations
    state = "closed" if any(each.effect == "all" for each in reasons) else "limited" if reasons else "open"
    placed_ns = max((each.placed_ns for each in facts.pods if each.placed_node == facts.name), default=0)
    return NodeAnswer(
        node=facts.name,
        state=state,
        summary=_summary(state, reasons, len(queue)),
        pods=len(facts.pods),
        last_placed=instant_of(placed_ns) if placed_ns else "",
        allocatable=allocatable,
        requested=requested,
        usage=_usage(facts),
        waiting=waiting,
        reasons=reasons,
        batch=tuple(_batch(facts)),
        evictions=tuple(_evictions(facts)),
        unknown=tuple(_unknown(facts)),
        steps=tuple(node_steps(facts)[-MOST_STEPS:]),
        ignored=tuple(ignored_settings_of_node(facts.node)),
        waiting_reservations=reservations,
    )


def _summary(state: str, reasons: tuple[NodeReason, ...], waiting: int) -> str:
    if state == "closed":
        return f"it takes no new pods: {'; '.join(each.text for each in reasons if each.effect == 'all')}"
    idle = "" if waiting else "; no pod waits for a node"
    if state == "limited":
        return f"it takes fewer pods: {'; '.join(each.text for each in reasons)}{idle}"
    return f"nothing in the log keeps pods from it{idle}"


def _of_object(facts: NodeFacts) -> Iterator[NodeReason]:
    """Yields what the Node object itself states."""
    node = facts.node
    if node.spec.unschedulable:
        since, event, began_ns = _since(facts, lambda each: each.spec.unschedulable)
        text, remedy = cordoned(facts.name, last_drain(facts.drains), began_ns, simulated=facts.simulated)
        yield NodeReason("all", since, event, text, remedy)
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    if ready is not None and ready.status != "True":
        text = f"its condition Ready is {ready.status}" + (f" ({ready.reason})" if ready.reason else "")
        yield NodeReason("all", ready.last_transition_time or "", "", text, "see the kubelet on it")
    if text := closing_label(node.metadata.labels or {}):
        yield NodeReason("all", "", "", text, edit_advice("node", facts.name, simulated=facts.simulated))
    for taint in node.spec.taints:
        if taint.effect not in CLOSED or taint.key.startswith("node.kubernetes.io/unschedulable"):
            continue
        since, event, _ = _since(facts, lambda each, own=taint: own in each.spec.taints)  # type: ignore[misc]
        written = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
        yield NodeReason("some", since, event, f"taint {written} keeps away pods that do not tolerate it")


def _since(facts: NodeFacts, holds: Callable[[Node], bool]) -> tuple[str, str, int]:
    """Returns instant and event of the observation since which a condition has held without a break, and the instant in
    nanoseconds since the epoch; 0 where the log does not have it.
    """
    found = ("", "", 0)
    for record in reversed(facts.observed):
        if not isinstance(record.event, NodeObserved) or not holds(record.event.object):
            break
        found = (instant_of(record.at_ns), f"{record.context}/{record.seq}", record.at_ns)
    return found


def _of_requests(facts: NodeFacts, allocatable: dict[str, int], requested: dict[str, int]) -> Iterator[NodeReason]:
    most = allocatable.get("pods", 0)
    if most and len(facts.pods) >= most:
        yield NodeReason("all", "", "", f"it has {len(facts.pods)} pods of {most}")
    for resource, size in sorted(requested.items()):
        there = allocatable.get(resource, 0)
        if size and _is_full(size, there):
            amounts = f"{human_amount(resource, size)} of {human_amount(resource, there)}"
            yield NodeReason("some", "", "", f"{resource} is requested in full ({amounts})")


def _is_full(requested: int, allocatable: int) -> bool:
    return requested * 100 >= allocatable * FULL_PERCENT


def _of_waiting(
    queue: list[WaitingPod], allocatable: dict[str, int], requested: dict[str, int]
) -> Iterator[NodeReason]:
    """Yields each resource of which waiting pods request more than is free, except one that is requested in full. Pods
    that no scheduler of ours tries, and those that request more than the whole node has, do not count.
    """
    queue = [
        each
        for each in queue
        if each.state.code not in NOT_TRIED
        and all(each.pod_class.request.get(resource, 0) <= there for resource, there in allocatable.items())
    ]
    for resource, there in sorted(allocatable.items()):
        size = requested.get(resource, 0)
        if _is_full(size, there):
            continue
        free = there - size
        if larger := sum(each.pod_class.request.get(resource, 0) > free for each in queue):
            of = (
                "the pod that waits requests"
                if len(queue) == 1
                else f"{larger} of the {len(queue)} pods that wait request"
            )
            amount = f"{human_amount(resource, free)} {resource}"
            yield NodeReason("some", "", "", f"{of} more than the {amount} that are free")


def _of_load(facts: NodeFacts, allocatable: dict[str, int], now_ns: int) -> Iterator[NodeReason]:
    rules = load_rules(facts.view, facts.node)
    if facts.ignored is not None:
        since = instant_text(facts.ignored.since_ns // SECOND * SECOND)
        remedy = remedy_of(facts.ignored, simulated=facts.simulated)
        yield NodeReason("some", since, "", describe_ignored(facts.ignored), remedy)
        if facts.reports and facts.reports[-1].source in {fault.source for fault in facts.ignored.faults}:
            for each in (rule for rule in rules if rule.rejects_expired):
                text = f"LoadAwareScheduling rejects it for {each.scheduler}: an ignored report counts as expired"
                yield NodeReason("all", since, "", text)
            return
    if not facts.reports:
        return
    report = facts.reports[-1]
    old_ns = now_ns - report.at_ns
    for each in rules:
        if each.rejects_expired and report.at_ns and old_ns >= each.expiration_ns:
            text = f"LoadAwareScheduling rejects it for {each.scheduler}: its last usage report is expired"
            yield NodeReason("all", instant_of(report.at_ns + each.expiration_ns), report.event, text)
        used = {"cpu": report.usage.cpu_milli, "memory": report.usage.memory}
        for resource, percent in each.thresholds.items():
            size, there = used.get(resource), allocatable.get(resource, 0)
            if each.of_window or size is None or not there or size * 100 <= there * percent:
                continue
            share = f"{size * 100 // there} % of {resource} is used, and {each.scheduler} allows {percent} %"
            yield NodeReason("all", instant_of(report.at_ns), report.event, share)
    if report.interval_s and report.at_ns and old_ns > SILENT_REPORTS * report.interval_s * SECOND:
        text = f"its {report.source} last reported {age(old_ns / SECOND)} ago, and reports every {report.interval_s} s"
        yield NodeReason("some", instant_of(report.at_ns), report.event, text, "see the node agent there, and its log")


def _usage(facts: NodeFacts) -> str:
    if not facts.reports:
        return ""
    report = facts.reports[-1]
    is_ignored = facts.ignored is not None and report.source in {fault.source for fault in facts.ignored.faults}
    return f"{usage_text(report)} ({report.source}, {report.event}{', ignored' if is_ignored else ''})"


def _batch(facts: NodeFacts) -> Iterator[str]:
    """Yields a line for each overcommitted resource, and what holds it where it is."""
    if not facts.decisions:
        yield f"no batch or mid resources were decided for it: {facts.overcommitment}"
        return
    record = facts.decisions[-1]
    decided = record.event
    assert isinstance(decided, NodeOvercommitted), "the type that was read"
    why = "its reports stopped: what its pods request" if decided.why == "degraded" else decided.why
    by = f", by a report of {instant_of(decided.report_ns)}" if decided.report_ns else ", without a report"
    yield f"decided at {instant_of(record.at_ns)} ({record.context}/{record.seq}, {why}){by}"
    for each in steps_of(decided):
        if each.steps and each.quantity:
            name = each.resource.rpartition("/")[2]
            terms = [
                f"{step.sign} {step.name} {human_amount(each.resource, step.amount)}".strip() for step in each.steps
            ]
            yield f"{name}: {' '.join(terms)}"
    yield from (f"problem: {each}" for each in decided.problems)
    if facts.frozen is not None:
        event: Any = facts.frozen.event
        silent = f"{event.silent} of {event.nodes} nodes are silent"
        yield f"overcommitment is frozen since {instant_of(facts.frozen.at_ns)}: {silent}; no amount rises"
    if (write := facts.write) is not None and not isinstance(write.event, DesiredStateApplied):
        reason = getattr(write.event, "reason", "") or f"the gateway may not {getattr(write.event, 'rule', 'write')}"
        yield f"the newest write to it failed at {instant_of(write.at_ns)} ({write.context}/{write.seq}): {reason}"
    if (suppressed := facts.suppressed) is not None and getattr(suppressed.event, "cpu_milli", None) is not None:
        yield f"since {instant_of(suppressed.at_ns)} {action_text(suppressed.event)}"


def _evictions(facts: NodeFacts) -> Iterator[str]:
    yield from facts.unrelieved
    if not facts.node.spec.unschedulable and (drain := waiting_for_cordon(facts.name, last_drain(facts.drains))):
        yield drain
    for pod, record in sorted(facts.evictions.items()):
        if isinstance(record.event, EvictionPaused):
            at = f"{instant_of(record.at_ns)} ({record.context}/{record.seq})"
            yield f"the eviction of {pod} waits since {at}: {record.event.reason}"


def _unknown(facts: NodeFacts) -> Iterator[str]:
    if not facts.reports:
        yield "its usage: the log has no report of it; `koord run node-agent` measures it"
    if not facts.actions:
        yield "whether batch pods are suppressed on it: the log has no action of its agent"
    yield "which pods a cycle rejected for this node: cycles record the number of nodes for each reason, not their names"


def _waiting(pods: int, reservations: int) -> str:
    wait = f"{pods} pod{'' if pods == 1 else 's'}"
    if reservations:
        its = f"{reservations} Reservation{'' if reservations == 1 else 's'}"
        wait = f"{wait} and {its}" if pods else its
    return f"{wait} wait{'s' if pods + reservations == 1 else ''} for a node"


def _lines(found: NodeAnswer) -> Iterator[str]:
    yield f"{found.node}: {found.summary}"
    last = f"; the last was placed at {found.last_placed}" if found.last_placed else ""
    yield f"  pods: {found.pods}{last}; in the cluster {_waiting(found.waiting, found.waiting_reservations)}"
    yield f"  requested: {human_amounts(found.requested)}"
    yield f"  allocatable: {human_amounts(found.allocatable)}"
    if found.usage:
        yield f"  measured: {found.usage}"
    for reason in found.reasons:
        when = f"since {reason.since}" if reason.since else "now"
        yield f"  {when}{f' ({reason.event})' if reason.event else ''}: {reason.text}"
        if reason.do:
            yield f"    do: {reason.do}"
    yield from (f"  ignored: {fault}" for fault in found.ignored)
    yield ""
    yield "batch resources:"
    yield from (f"  {line}" for line in found.batch)
    for title, lines in (("evictions", found.evictions), ("not known", found.unknown)):
        if lines:
            yield f"{title}:"
            yield from (f"  {line}" for line in lines)
    if found.steps:
        yield ""
    for step in found.steps:
        yield f"{step.at}  {step.event:<18} {step.text}"
