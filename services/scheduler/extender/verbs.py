"""The extender's verbs as functions of what is known. Source: k8s.io/kube-scheduler/extender/v1; spec/scheduler-core.md 1.5."""

from collections.abc import Callable

import msgspec

from services.scheduler.extender.api_types import (
    MAX_EXTENDER_SCORE,
    ExtenderArgs,
    ExtenderFilterResult,
    HostPriority,
    MetaVictims,
    NodeItems,
)
from services.scheduler.extender.evaluation_query import EvaluationQuery


class _Named(msgspec.Struct):
    name: str


class _Item(msgspec.Struct):
    metadata: _Named


def names_of(ask: ExtenderArgs) -> tuple[str, ...]:
    """The nodes a question is about."""
    if ask.node_names is not None:
        return ask.node_names
    return tuple(_name(item) for item in (ask.nodes or NodeItems()).items)


def filter_result(ask: ExtenderArgs, query: EvaluationQuery) -> ExtenderFilterResult:
    """Which nodes may take the pod, and why the others may not."""
    fits = {name for name in names_of(ask) if query.feasible(name)}
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    for name in names_of(ask):
        if name not in fits:
            why, no_use = query.why_not(name)
            (unresolvable if no_use else failed)[name] = why
    if ask.node_names is not None:
        names = tuple(name for name in ask.node_names if name in fits)
        return ExtenderFilterResult(node_names=names, failed_nodes=failed, failed_and_unresolvable_nodes=unresolvable)
    items = [item for item in (ask.nodes or NodeItems()).items if _name(item) in fits]
    nodes = {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items}
    return ExtenderFilterResult(nodes=nodes, failed_nodes=failed, failed_and_unresolvable_nodes=unresolvable)


def priorities(ask: ExtenderArgs, query: EvaluationQuery) -> list[HostPriority]:
    """The nodes' totals on the protocol's scale: the best of those asked about gets 10, the worst 0."""
    scores = {name: query.score(name) for name in names_of(ask)}
    able = [score for score in scores.values() if score >= 0]
    low, high = (min(able), max(able)) if able else (0, 0)

    def scaled(score: int) -> int:
        if score < 0:
            return 0
        return MAX_EXTENDER_SCORE * (score - low) // (high - low) if high > low else MAX_EXTENDER_SCORE

    return [HostPriority(host=name, score=scaled(score)) for name, score in scores.items()]


def feasible_candidates(candidates: dict[str, MetaVictims], query: EvaluationQuery) -> dict[str, MetaVictims]:
    """The candidates on which our rules let the pod once the victims are gone."""
    return {
        node: victims
        for node, victims in candidates.items()
        if query.feasible_without(node, (pod.uid for pod in victims.pods or ()))
    }


def cheapest(candidates: dict[str, MetaVictims], is_evicted: Callable[[str], bool]) -> str:
    """The node with the fewest victims that are not asked to go already and break disruption budgets, then of any kind, then by name.

    Args:
        is_evicted: whether a pod, by uid, is on its way.

    Returns:
        Empty for no candidates.
    """

    def cost(node: str) -> tuple[int, int, str]:
        more = sum(not is_evicted(pod.uid) for pod in candidates[node].pods or ())
        return min(candidates[node].num_pdb_violations, more), more, node

    return min(candidates, key=cost, default="")


def _name(item: msgspec.Raw) -> str:
    return msgspec.json.decode(item, type=_Item).metadata.name
