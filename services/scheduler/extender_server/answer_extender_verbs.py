"""The extender's verbs, as pure functions of a query. Source: k8s.io/kube-scheduler/extender/v1; spec/scheduler-core.md
1.5.
"""

from collections.abc import Callable

import msgspec

from services.scheduler.extender_server.api_types import (
    MAX_EXTENDER_SCORE,
    ExtenderArgs,
    ExtenderFilterResult,
    HostPriority,
    MetaVictims,
    NodeItems,
)
from services.scheduler.extender_server.evaluate_pod_outside_cycle import EvaluationQuery


class _Named(msgspec.Struct):
    name: str


class _Item(msgspec.Struct):
    metadata: _Named


def names_of(args: ExtenderArgs) -> tuple[str, ...]:
    """Returns the names of the nodes in a request."""
    if args.node_names is not None:
        return args.node_names
    return tuple(_name(item) for item in (args.nodes or NodeItems()).items)


def filter_result(args: ExtenderArgs, query: EvaluationQuery) -> ExtenderFilterResult:
    """Returns the nodes that pass every filter, and the reasons of the others."""
    fits = {name for name in names_of(args) if query.feasible(name)}
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    for name in names_of(args):
        if name not in fits:
            reasons, is_unresolvable = query.rejection(name)
            (unresolvable if is_unresolvable else failed)[name] = reasons
    if args.node_names is not None:
        names = tuple(name for name in args.node_names if name in fits)
        return ExtenderFilterResult(node_names=names, failed_nodes=failed, failed_and_unresolvable_nodes=unresolvable)
    items = [item for item in (args.nodes or NodeItems()).items if _name(item) in fits]
    nodes = {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items}
    return ExtenderFilterResult(nodes=nodes, failed_nodes=failed, failed_and_unresolvable_nodes=unresolvable)


def priorities(args: ExtenderArgs, query: EvaluationQuery) -> list[HostPriority]:
    """Returns the nodes' totals on the protocol's scale: 10 for the best node of the request, 0 for the worst."""
    scores = {name: query.score(name) for name in names_of(args)}
    able = [score for score in scores.values() if score >= 0]
    low, high = (min(able), max(able)) if able else (0, 0)

    def scaled(score: int) -> int:
        if score < 0:
            return 0
        return MAX_EXTENDER_SCORE * (score - low) // (high - low) if high > low else MAX_EXTENDER_SCORE

    return [HostPriority(host=name, score=scaled(score)) for name, score in scores.items()]


def feasible_candidates(candidates: dict[str, MetaVictims], query: EvaluationQuery) -> dict[str, MetaVictims]:
    """Returns the candidates that pass every filter of this scheduler once their victims have left."""
    return {
        node: victims
        for node, victims in candidates.items()
        if query.feasible_without(node, (pod.uid for pod in victims.pods or ()))
    }


def cheapest(candidates: dict[str, MetaVictims], is_evicted: Callable[[str], bool]) -> str:
    """Returns the node with the fewest new victims beyond their disruption budgets, then with the fewest new victims,
    then by name.

    Args:
        is_evicted: True for a pod, by uid, whose eviction is requested already.

    Returns:
        The node; empty for no candidates.
    """

    def cost(node: str) -> tuple[int, int, str]:
        more = sum(not is_evicted(pod.uid) for pod in candidates[node].pods or ())
        return min(candidates[node].num_pdb_violations, more), more, node

    return min(candidates, key=cost, default="")


def _name(item: msgspec.Raw) -> str:
    return msgspec.json.decode(item, type=_Item).metadata.name
