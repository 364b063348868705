"""`koord describe node`: what the log has about a node."""

from collections.abc import Mapping, Sequence

from cli.describe.describe_command import describe_command
from cli.describe.description import Description, Table, Value
from cli.describe.last_events import last_events
from cli.node.ignored_reports import ignored_reports_of
from cli.node.usage_reports import usage_reports, usage_text
from cli.scheduling.recorded_state import scheduler_state
from cli.terminal import name_completion
from cli.terminal.amounts import human_amount
from services.scheduler.explain.requested_on_node import requested_on
from services.scheduler.framework.config.decision_settings import in_force
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.kube.node import Node, NodeCondition
from shared.kube.quantity import BadQuantity, amount, nanos
from shared.log.reader import LogReader

MOST_PODS = 30


async def describe(log: LogReader, name: str) -> Description:
    """Describes a node.

    Raises:
        KoordError: the log has no node of this name.
    """
    view = await scheduler_state(log)
    record = view.nodes.get(name)
    if record is None:
        hint = did_you_mean(name, view.nodes)
        raise KoordError(f"the log has no node {name!r}{hint}; `koord get nodes` shows those there are")
    node = record.node
    pods = sorted((each for each in view.pods.values() if _is_on(each, name)), key=lambda each: each.name)
    ready = next((one for one in node.status.conditions if one.type == "Ready"), None)
    found: dict[str, Value] = {
        "Name": name,
        "UID": node.metadata.uid,
        "Created": node.metadata.creation_timestamp or "",
        "Labels": [f"{key}={value}" for key, value in sorted((node.metadata.labels or {}).items())],
        "Taints": [f"{one.key}{f'={one.value}' if one.value else ''}:{one.effect}" for one in node.spec.taints],
        "Unschedulable": "true" if node.spec.unschedulable else "false",
        "Ready": _since(ready),
    }
    found["Usage"] = [await _usage(log, name), *await _ignored(log, name)]
    believes_annotations = in_force(view.config_settings).believes_annotations
    requested = requested_on(view, node, pods, believes_annotations=believes_annotations)
    found["Resources"] = _resources(node, sum(each.pod_class is not None for each in pods), requested)
    found["Pods"] = _pods(pods)
    contexts = {"cluster", "slo", *(each for each in await log.contexts() if each.startswith("nodes-"))}
    return {**found, "Events": await last_events(log, name, contexts)}


def _since(condition: NodeCondition | None) -> str:
    if condition is None or not condition.last_transition_time:
        return "" if condition is None else condition.status
    return f"{condition.status} since {condition.last_transition_time}"


def _is_on(record: PodRecord, name: str) -> bool:
    return not record.ended and record.node_or_placement() == name


async def _usage(log: LogReader, name: str) -> str:
    """Returns the newest measured usage: of a report of the agent, else of the NodeMetric."""
    reports = await usage_reports(log, name, newest=1)
    return usage_text(reports[-1]) if reports else "no report"


async def _ignored(log: LogReader, name: str) -> list[str]:
    """Returns why the node's reports are ignored; nothing where all are believed."""
    found = await ignored_reports_of(log, name)
    return [] if found is None else [f"ignored: {fault.source}: {fault.what}" for fault in found.faults]


def _texts(quantities: Mapping[str, str] | None) -> str:
    return ", ".join(f"{name} {_human(name, text)}" for name, text in sorted((quantities or {}).items()))


def _human(name: str, text: str) -> str:
    try:
        return human_amount(name, amount(name, nanos(text)))
    except BadQuantity:
        return text


def _resources(node: Node, pods: int, requested: Mapping[str, int]) -> Table:
    capacity, allocatable = node.status.capacity or {}, node.status.allocatable or {}
    rows = []
    for name in dict.fromkeys((*capacity, *allocatable, *sorted(requested))):
        size = pods if name == "pods" else requested.get(name, 0)
        rows.append((name, _cell(capacity, name), _cell(allocatable, name), human_amount(name, size)))
    columns = ("resource", "capacity", "allocatable", "requested")
    return Table(columns, rows, right=columns[1:])


def _cell(quantities: Mapping[str, str], name: str) -> str:
    return _human(name, quantities[name]) if name in quantities else "-"


def _pods(pods: Sequence[PodRecord]) -> Table:
    rows = []
    for each in pods[:MOST_PODS]:
        request = each.pod_class.request if each.pod_class is not None else {}
        name = each.name if "/" in each.name else f"reservation/{each.name}"
        state = "" if each.node else " (placed)"
        sizes = (human_amount(resource, request.get(resource, 0)) for resource in ("cpu", "memory"))
        rows.append((name + state, *sizes))
    if len(pods) > MOST_PODS:
        rows.append((f"and {len(pods) - MOST_PODS} more", "", ""))
    return Table(("name", "cpu", "memory"), rows, right=("cpu", "memory"))


command = describe_command(
    describe,
    "Show a node: capacity, requests, measured usage, its pods, and its last events.",
    complete=name_completion.nodes,
)
