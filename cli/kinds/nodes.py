"""Nodes: what each has and what its pods request."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from cli.kinds.kind import Column, Kind, get_command
from cli.scheduling.recorded_state import scheduler_state
from cli.terminal import name_completion
from cli.terminal.amounts import human_amount, readable_amounts
from services.scheduler.explain.requested_on_node import requested_on
from services.scheduler.framework.config.decision_settings import in_force
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.kube.node import Node
from shared.log.admin.session import reading


class NodeListed(msgspec.Struct, frozen=True):
    """A node.

    Attributes:
        status: `Ready`, `NotReady` or `Unknown`, and whether it is unschedulable.
        pods: number of pods that are on it, or placed there.
        allocatable, requested: resource -> amount, cpu in milli-cores, memory in bytes; unreadable ones are
            left out. Requests as the scheduler counts them, with what Reservations hold.
    """

    name: str
    status: str
    pods: int
    allocatable: dict[str, int]
    requested: dict[str, int]
    taints: tuple[str, ...]


async def read(postgres: str) -> Sequence[NodeListed]:
    """Reads all nodes, by name."""
    async with reading(postgres) as log:
        view = await scheduler_state(log)
    pods: dict[str, list[PodRecord]] = {}
    for record in view.pods.values():
        node = record.node_or_placement()
        if node and not record.ended and record.pod_class is not None:
            pods.setdefault(node, []).append(record)
    believes_annotations = in_force(view.config_settings).believes_annotations
    return [
        NodeListed(
            name,
            _status(view.nodes[name].node),
            len(pods.get(name, ())),
            readable_amounts(view.nodes[name].node.status.allocatable),
            requested_on(view, view.nodes[name].node, pods.get(name, ()), believes_annotations=believes_annotations),
            tuple(f"{taint.key}:{taint.effect}" for taint in view.nodes[name].node.spec.taints),
        )
        for name in sorted(view.nodes)
    ]


def _status(node: Node) -> str:
    ready = next((each.status for each in node.status.conditions if each.type == "Ready"), "Unknown")
    status = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    return f"{status},SchedulingDisabled" if node.spec.unschedulable else status


def _used(resource: str, item: NodeListed) -> str:
    there = human_amount(resource, item.allocatable[resource]) if resource in item.allocatable else "-"
    return f"{human_amount(resource, item.requested.get(resource, 0))} of {there}"


KIND = Kind(
    "node",
    "nodes",
    read,
    (
        Column("name", attrgetter("name")),
        Column("status", attrgetter("status")),
        Column("pods", attrgetter("pods"), is_right=True),
        Column("cpu requested", lambda item: _used("cpu", item), is_right=True),
        Column("memory requested", lambda item: _used("memory", item), is_right=True),
        Column("taints", lambda item: ", ".join(item.taints) or "-", is_wide=True),
    ),
    complete=name_completion.nodes,
)

get = get_command(KIND, "List nodes: status, pods, and the requests of these against what is allocatable.")
