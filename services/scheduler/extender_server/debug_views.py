"""Views of a node as the scheduler sees it, as upstream's services engine serves them. Source: spec/api.md 6.2."""

from collections.abc import Callable, Mapping
from typing import Any

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.extender_server.evaluate_pod_outside_cycle import EvaluationQuery

Json = dict[str, Any]


def node_info(cache: CycleInputs, name: str) -> Json | None:
    """Returns the node's allocatable amounts, those requested of it and the rest; None when there is no such node."""
    cache.settle()
    table = cache.table
    row = table.rows.get(name)
    if row is None or not table.alive[row]:
        return None
    allocatable = {resource: int(table.allocatable[row, column]) for resource, column in table.columns.items()}
    requested = {resource: int(table.requested[row, column]) for resource, column in table.columns.items()}
    pods = sorted(
        pod_record.name
        for pod_record in cache.view.pods.values()
        if (at := pod_record.assignment()) and at.node == name
    )
    return {
        "node": name,
        "allocatable": _some(allocatable),
        "requested": _some(requested),
        "remaining": _some({resource: amount - requested[resource] for resource, amount in allocatable.items()}),
        "pods": pods,
        "allowedPods": int(table.allowed_pods[row]),
        "unschedulable": bool(table.unschedulable[row]),
    }


def scores(query: EvaluationQuery, top: int) -> str:
    """Returns the best nodes for a pod as a Markdown table with each plugin's score: upstream's dump of scores."""
    evaluation = query.evaluation
    rows = sorted((int(row) for row in evaluation.feasible()), key=lambda row: -int(evaluation.total[row]))[:top]
    candidates = evaluation.candidates(rows)
    plugins = sorted({plugin for candidate in candidates for plugin in candidate.plugin_scores})
    head = ["#", "Node", "Score", *plugins]
    lines = [head, ["---"] * len(head)]
    for number, candidate in enumerate(candidates):
        parts = [str(candidate.plugin_scores.get(plugin, 0)) for plugin in plugins]
        lines.append([str(number), candidate.node, str(candidate.score), *parts])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def failures(query: EvaluationQuery, names: Mapping[str, int]) -> Json:
    """Returns node -> reasons of the nodes that do not pass: upstream's dump of filter failures."""
    return {name: query.rejection(name)[0] for name in sorted(names) if name and not query.feasible(name)}


def plugin_views(cache: CycleInputs) -> dict[str, Callable[[str], Json | None]]:
    """Returns route below /apis/v1/plugins/ -> view of a node, for the plugins that declare one."""
    views: dict[str, Callable[[str], Json | None]] = {}
    for plugin, plugin_cache in cache.plugin_caches.items():
        if plugin.spec.view and plugin_cache is not None:
            views.setdefault(f"{plugin.name}/{plugin.spec.view}", _of_node(cache, plugin_cache.view))
    return views


def _of_node(cache: CycleInputs, view_of: Callable[[int], Json]) -> Callable[[str], Json | None]:
    def view(name: str) -> Json | None:
        cache.settle()
        row = cache.table.rows.get(name)
        return None if row is None else view_of(row)

    return view


def _some(amounts: Mapping[str, int]) -> dict[str, int]:
    return {resource: amount for resource, amount in sorted(amounts.items()) if amount}
