"""`koord why slowdown`: what the log has about why a pod may have been slowed, or was suppressed."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from cli.node.agent_actions import action_text, actions_of
from cli.node.node_facts import NodeFacts, node_facts
from cli.node.node_steps import NodeStep, step_of
from cli.node.recorded_interference import (
    Interference,
    interference_findings,
    interference_of,
    suspected_of,
)
from cli.node.usage_reports import UsageReport, usage_reports
from cli.scheduling.answer_from_log import answer
from cli.terminal.amounts import human_amount, readable_amounts
from cli.terminal.durations import instant, instant_of
from cli.terminal.object_name import namespaced_name
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format
from cli.terminal.time_arguments import Instant
from shared.domain.qos import QoS, qos
from shared.errors import KoordError
from shared.events import RecordedEvent
from shared.events.cluster import PodBound, PodObserved
from shared.events.nodes import (
    AgentEvictionRequested,
    BestEffortSuppressed,
    PodBurst,
    PodInterfered,
    PodInterferenceEnded,
)
from shared.kube.pod import Pod
from shared.kube.slo_config import ResourceThreshold
from shared.log.admin.newest_events import newest
from shared.log.reader import LogReader

PERIOD = timedelta(hours=1)
MOST_STEPS, MOST_NEIGHBOURS = 15, 5
HIGH_PERCENT = 80
"""Share of a node's cpu above which its pods are likely to wait for each other."""
NEAR_LIMIT_PERCENT = 90
NEVER_RECORDED = (
    "throttled periods of its cgroup, and the clock of the CPUs: no event has them; see the node's own metrics"
)
NOT_DETECTED = (
    "waits for cpu, memory, disk and network: its NodeSLO does not enable interference detection (interference-config)"
)


class Neighbour(msgspec.Struct, frozen=True):
    """Another pod of the node at its newest report; milli-cores and bytes, None where they were not measured."""

    pod: str
    qos: str
    cpu_milli: int | None
    memory: int | None


class SlowdownAnswer(msgspec.Struct, frozen=True):
    """Recorded facts about the speed of a pod.

    Attributes:
        since: the instant from which on reports and actions are read.
        findings: sentences with instants, those about the pod itself first.
        neighbours: other pods of the node, by cpu.
        unknown: what the log does not have.
        steps: actions of the agent that concern the pod, oldest first.
        interference: times for which best-effort neighbours slowed it down, oldest first.
    """

    pod: str
    pod_uid: str
    node: str
    qos: str
    since: str
    summary: str
    findings: tuple[str, ...]
    neighbours: tuple[Neighbour, ...]
    unknown: tuple[str, ...]
    steps: tuple[NodeStep, ...]
    interference: tuple[Interference, ...] = ()


class _Read(NamedTuple):
    """The facts that were read for one pod; `reports` and `actions` of its node since an instant, oldest first."""

    name: str
    pod: Pod
    facts: NodeFacts
    reports: Sequence[UsageReport]
    actions: Sequence[Any]
    since: datetime


@click.command
@namespaced_name
@click.option("--since", type=Instant(), default=None, help="From this instant on, or an age.  [default: 1h]")
@output_option
@folder_option
def slowdown(*, name: str, since: datetime | None, output: Format, folder: Path) -> None:
    """Show what the log has about why a pod may have been slowed or suppressed.

    Interference by best-effort neighbours (what deviated, by how much, suspects, what was done), recorded actions of
    the node's agent (suppression of best-effort pods, CPU bursts, evictions), measured usage of the node, and
    its neighbours. It names what no event records.
    """
    begin = since or datetime.now(UTC) - PERIOD
    answer(folder, output, lambda log: explain_slowdown(log, name, begin), _lines)


async def explain_slowdown(log: LogReader, name: str, since: datetime) -> SlowdownAnswer:
    """Explains the newest pod of a name.

    Raises:
        KoordError: the log has no such pod, or it has no node.
    """
    pod, node = await _pod_and_node(log, name)
    if not node:
        raise KoordError(f"pod {name} has no node yet: it waits, it is not slow; see `koord why pod {name}`")
    facts = await node_facts(log, node)
    reports = await usage_reports(log, node, since=since)
    actions = await actions_of(log, node, since=since)
    return explained(_Read(name, pod, facts, reports, actions, since))


async def _pod_and_node(log: LogReader, name: str) -> tuple[Pod, str]:
    there = await log.contexts()
    found = await newest(log.database, "cluster", [PodObserved], key=name) if "cluster" in there else []
    if not found or not isinstance(found[0].record.event, PodObserved):
        raise KoordError(f"the log has no pod {name!r}; `koord get pods -A` shows those there are")
    pod = found[0].record.event.object
    if pod.spec.node_name:
        return pod, pod.spec.node_name
    bound = await newest(log.database, "cluster", [PodBound], key=name)
    event = bound[0].record.event if bound else None
    return pod, event.node if isinstance(event, PodBound) and event.pod_uid == pod.metadata.uid else ""


def explained(read: _Read) -> SlowdownAnswer:
    """Explains from what was read."""
    own, is_best_effort = qos(read.pod), qos(read.pod) is QoS.BE
    concerned = [record for record in read.actions if _concerns(record.event, read, is_best_effort=is_best_effort)]
    suppression = list(_suppression(read, is_best_effort=is_best_effort))
    interference = interference_of(_all_actions(read), read.pod.metadata.uid)
    interfered = [*interference_findings(interference), *suspected_of(read.actions, read.pod.metadata.uid)]
    findings = [*interfered, *suppression, *_own_usage(read), *_node_usage(read)]
    steps = [step_of(record, action_text(record.event, read.name)) for record in concerned[-MOST_STEPS:]]
    latest = read.reports[-1] if read.reports else None
    return SlowdownAnswer(
        pod=read.name,
        pod_uid=read.pod.metadata.uid,
        node=read.facts.name,
        qos=own.value,
        since=instant(read.since),
        summary=_summary(findings, len(concerned)),
        findings=tuple(findings),
        neighbours=tuple(
            Neighbour(each.pod, each.qos, each.cpu_milli, each.memory)
            for each in (latest.pods if latest else ())
            if each.pod != read.name
        )[:MOST_NEIGHBOURS],
        unknown=tuple(_unknown(read)),
        steps=tuple(steps),
        interference=tuple(interference),
    )


def _all_actions(read: _Read) -> list[RecordedEvent]:
    """Returns the actions since the instant, and older ones among the newest: interference may have begun before."""
    known = {(each.context, each.seq) for each in read.actions}
    older = [each for each in read.facts.actions if (each.context, each.seq) not in known]
    return [*older, *read.actions]


def _summary(findings: Sequence[str], actions: int) -> str:
    if findings:
        return findings[0]
    if actions:
        return f"{actions} actions of the node's agent concern it"
    return "the log has nothing that slowed it"


def _concerns(event: Any, read: _Read, *, is_best_effort: bool) -> bool:
    if isinstance(event, BestEffortSuppressed):
        return is_best_effort
    uid = read.pod.metadata.uid
    about_pod = PodBurst | AgentEvictionRequested | PodInterfered | PodInterferenceEnded
    return isinstance(event, about_pod) and event.pod_uid == uid


def _suppression(read: _Read, *, is_best_effort: bool) -> Iterator[str]:
    """Yields how best-effort pods of the node are limited: the pod is one of them, or a neighbour of theirs."""
    last = read.facts.suppressed
    if last is not None and isinstance(last.event, BestEffortSuppressed):
        at = f"{instant_of(last.at_ns)} ({last.context}/{last.seq})"
        limit = last.event.cpu_milli
        if limit is not None and is_best_effort:
            there = _cpu_of(read)
            share = f" of {human_amount('cpu', there)}" if there else ""
            yield f"it is suppressed since {at}: all best-effort pods of {read.facts.name} share {human_amount('cpu', limit)} cpu{share}"
        elif limit is not None:
            yield f"best-effort pods beside it are held to {human_amount('cpu', limit)} cpu since {at}, for pods like it"
        elif is_best_effort:
            yield f"it is not suppressed since {at}"
    policy = _threshold(read.facts)
    if policy is not None and not policy.enable and not is_best_effort:
        yield "its NodeSLO does not suppress best-effort pods: nothing keeps them from using its node's idle cpu"


def _threshold(facts: NodeFacts) -> ResourceThreshold | None:
    """Returns the thresholds of the newest NodeSLO that was desired for the node; None where there is none."""
    body = getattr(facts.slo.event, "body", None) if facts.slo is not None else None
    part = ((body or {}).get("spec") or {}).get("resourceUsedThresholdWithBE")
    try:
        return msgspec.convert(part, ResourceThreshold) if part is not None else None
    except msgspec.ValidationError:
        return None


def _detects(facts: NodeFacts) -> bool:
    """Reports whether the newest NodeSLO that was desired for the node enables interference detection."""
    body = getattr(facts.slo.event, "body", None) if facts.slo is not None else None
    extensions = ((body or {}).get("spec") or {}).get("extensions") or {}
    return bool((extensions.get("interference") or {}).get("enable"))


def _own_usage(read: _Read) -> Iterator[str]:
    limits = [each.resources.limits or {} if each.resources else {} for each in read.pod.spec.containers]
    cpu = [readable_amounts(each).get("cpu") for each in limits]
    limit = sum(each or 0 for each in cpu) if cpu and all(cpu) else 0
    used = [
        (each.cpu_milli, report)
        for report in read.reports
        for each in report.pods
        if each.pod == read.name and each.cpu_milli is not None
    ]
    if not used:
        return
    most, report = max(used, key=lambda each: each[0])
    text = f"it used at most {human_amount('cpu', most)} cpu, at {instant_of(report.at_ns)} ({report.event})"
    if limit and most * 100 >= limit * NEAR_LIMIT_PERCENT:
        yield f"{text}: its limit is {human_amount('cpu', limit)}, so the kernel is likely to have throttled it"
    else:
        yield text + (f"; its limit is {human_amount('cpu', limit)}" if limit else "; it has no cpu limit")


def _cpu_of(read: _Read) -> int:
    """Returns the milli-cores of the node; 0 where they are not known."""
    status = read.facts.node.status
    return readable_amounts(status.capacity or status.allocatable).get("cpu", 0)


def _node_usage(read: _Read) -> Iterator[str]:
    there = _cpu_of(read)
    measured = [(each.usage.cpu_milli, each) for each in read.reports if each.usage.cpu_milli is not None]
    if not measured or not there:
        return
    most, report = max(measured, key=lambda each: each[0])
    share = most * 100 // there
    busy = sum(size * 100 >= there * HIGH_PERCENT for size, _ in measured)
    text = f"{read.facts.name} used at most {share} % of its cpu, at {instant_of(report.at_ns)} ({report.event})"
    if busy:
        text += f"; {busy} of {len(measured)} reports are above {HIGH_PERCENT} %: its pods are likely to wait for cpu"
    if report.best_effort.cpu_milli is not None:
        text += f"; best-effort pods used {human_amount('cpu', report.best_effort.cpu_milli)} of it"
    yield text
    if read.facts.ignored is not None:
        yield "reports about the node cannot be true and are ignored at present: `koord why node` has the reason"


def _unknown(read: _Read) -> Iterator[str]:
    if not read.reports:
        yield f"usage: the log has no report about {read.facts.name} since {instant(read.since)}"
    elif not any(each.pod == read.name for report in read.reports for each in report.pods):
        yield "its own usage: no report names it"
    if not read.facts.actions:
        yield f"actions on {read.facts.name}: its agent has recorded none, or none runs there"
    if not _detects(read.facts):
        yield NOT_DETECTED
    yield NEVER_RECORDED


def _lines(found: SlowdownAnswer) -> Iterator[str]:
    yield f"{found.pod} ({found.pod_uid}), {found.qos or 'no'} class, on {found.node}: {found.summary}"
    yield f"  read since {found.since}"
    yield from (f"  {each}" for each in found.findings[1:])
    if found.neighbours:
        yield "neighbours by cpu, at the newest report:"
        for each in found.neighbours:
            cpu = human_amount("cpu", each.cpu_milli) if each.cpu_milli is not None else "?"
            memory = human_amount("memory", each.memory) if each.memory is not None else "?"
            yield f"  {each.pod} ({each.qos or 'no class'}): cpu {cpu}, memory {memory}"
    yield "not known:"
    yield from (f"  {each}" for each in found.unknown)
    if found.steps:
        yield ""
    for step in found.steps:
        yield f"{step.at}  {step.event:<18} {step.text}"
