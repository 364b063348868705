"""The recorded events of a node as sentences, in order of time."""

import msgspec

from cli.node.agent_actions import action_text
from cli.node.drains_of_node import drain_step
from cli.node.node_facts import NodeFacts
from cli.terminal.amounts import human_amount
from cli.terminal.durations import instant_of
from shared.events import RecordedEvent
from shared.events.cluster import EvictionPaused, NodeDeleted, NodeObserved
from shared.events.migration import DrainEnded, DrainRequested
from shared.events.slo import NodeOvercommitted
from shared.kube.node import Node
from shared.kube.quantity import NANO, nanos


class NodeStep(msgspec.Struct, frozen=True):
    """An event: `context/seq`, the instant of its append, and what happened."""

    event: str
    at: str
    text: str


def node_steps(facts: NodeFacts) -> list[NodeStep]:
    """Returns what changed on a node, oldest first; observations in which nothing of interest changed are left out."""
    found: list[tuple[RecordedEvent, str]] = []
    before: Node | None = None
    for record in facts.observed:
        if isinstance(record.event, NodeDeleted):
            found.append((record, "the node was deleted"))
            before = None
        elif isinstance(record.event, NodeObserved):
            if text := observed_change(before, record.event.object):
                found.append((record, text))
            before = record.event.object
    for record in facts.decisions:
        if isinstance(record.event, NodeOvercommitted):
            amounts = {
                name.rpartition("/")[2]: nanos(text) // NANO for name, text in record.event.amounts.items() if text
            }
            shown = ", ".join(f"{name} {human_amount(name, size)}" for name, size in sorted(amounts.items()))
            shown = shown or "none"
            found.append((record, f"overcommitted resources: {shown} ({record.event.why})"))
    found += [(record, action_text(record.event)) for record in facts.actions]
    found += [
        (record, drain_step(record.event))
        for record in facts.drains
        if isinstance(record.event, DrainRequested | DrainEnded)
    ]
    found += [
        (record, f"the eviction of {pod} waits: {record.event.reason}")
        for pod, record in facts.evictions.items()
        if isinstance(record.event, EvictionPaused)
    ]
    return [step_of(record, text) for record, text in sorted(found, key=lambda each: each[0].at_ns)]


def step_of(record: RecordedEvent, text: str) -> NodeStep:
    """Returns a step from an event and its sentence."""
    return NodeStep(f"{record.context}/{record.seq}", instant_of(record.at_ns), text)


def observed_change(before: Node | None, after: Node) -> str:
    """Returns what changed between two observations of a node, as far as it matters to pods; empty for nothing."""
    parts = []
    was_closed = before is not None and before.spec.unschedulable
    if after.spec.unschedulable != was_closed:
        parts.append("cordoned" if after.spec.unschedulable else "uncordoned")
    taints = set(before.spec.taints) if before else set()
    parts += [f"taint {each.key}:{each.effect} added" for each in after.spec.taints if each not in taints]
    parts += [
        f"taint {each.key}:{each.effect} removed"
        for each in (before.spec.taints if before else ())
        if each not in after.spec.taints
    ]
    ready, was_ready = _ready(after), _ready(before) if before else ""
    if ready != was_ready and ready:
        parts.append(f"Ready is {ready}")
    if before is not None and _native(before) != _native(after):
        parts.append("its allocatable cpu, memory or pods changed")
    return "; ".join(parts)


def _ready(node: Node) -> str:
    return next((each.status for each in node.status.conditions if each.type == "Ready"), "")


def _native(node: Node) -> dict[str, str]:
    found = node.status.allocatable or {}
    return {name: found[name] for name in ("cpu", "memory", "pods") if name in found}
