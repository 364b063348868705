"""Preemption inside a quota as upstream does it: one node at a time, among the pods of the same quota there. Source: spec/quota.md 6.3."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from cli.parity.upstream.quota.nodes import RESOLVED_BY_NOBODY, Nodes
from cli.parity.upstream.quota.quirks import ALL
from cli.parity.upstream.quota.scheduler import Scheduler
from cli.parity.upstream.quota.verdict import limit_of, verdict
from cli.parity.upstream.quota.victims import started_ns
from services.quota_ledger.resolve import is_preemptible
from shared.domain.amounts import Amounts, add, exceeding, mask
from shared.kube.elastic_quota import DEFAULT
from shared.kube.pod import Pod

NEVER = "not eligible due to preemptionPolicy=Never."
WAITS = "not eligible due to a terminating pod on the nominated node."


class Candidate(NamedTuple):
    """A pod of the same quota that may give way.

    Attributes:
        counted: its part of the quota's use.
        violates: its eviction would break a disruption budget.
    """

    pod: str
    counted: Mapping[str, int]
    priority: int
    started_ns: int
    violates: bool


class Choice(NamedTuple):
    """The victims on one node, those that break a budget first, and how many of these the node itself needs gone."""

    victims: tuple[Candidate, ...]
    violations: int


def preempt(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the verdicts on a pod, and the victims on each node when there is no room for it."""
    scheduler, nodes = Scheduler.after(given, ALL), Nodes(given)
    scheduler.take({"type": "podAdd", "pod": given["pod"]})
    scheduler.settle()
    pod = msgspec.convert(given["pod"], Pod)
    refused = verdict(scheduler, pod)
    statuses = {node: "Unschedulable" if refused else nodes.status(node, pod) for node in nodes.allocatable}
    found: dict[str, Any] = {"preFilter": refused.refusal()} if refused else {"preFilter": {"code": "Success"}, "filter": statuses}
    found["schedulable"] = "Success" in statuses.values()
    if found["schedulable"]:
        return found
    if reason := _not_eligible(scheduler, nodes, pod, statuses):
        return found | {"eligible": False, "reason": reason}
    seen: dict[str, dict[str, Any]] = {}
    chosen: dict[str, Choice] = {}
    for node, status in statuses.items():
        if status != "Unschedulable":
            seen[node] = {"potential": False}
            continue
        code, choice = _dry_run(scheduler, given, nodes, node, pod)
        seen[node] = {"potential": True, "code": code}
        if choice is not None:
            chosen[node] = choice
            seen[node] |= {"victims": [each.pod for each in choice.victims], "numPDBViolations": choice.violations}
    return found | {"eligible": True, "nodes": seen, "nominatedNode": _best_node(chosen)}


def _dry_run(
    scheduler: Scheduler, given: Mapping[str, Any], nodes: Nodes, node: str, pod: Pod
) -> tuple[str, Choice | None]:
    quota, tree = scheduler.resolve(pod)
    shielded = quota == DEFAULT and scheduler.args.get("disableDefaultQuotaPreemption", True)
    weaker = [
        other
        for other in nodes.pods[node]
        if not shielded
        and is_preemptible(other)
        and priority_of(other) < priority_of(pod)
        and scheduler.resolve(other) == (quota, tree)
    ]
    if not weaker:
        return RESOLVED_BY_NOBODY, None
    if (status := nodes.status(node, pod, [other.metadata.key for other in weaker])) != "Success":
        return status, None
    weaker.sort(key=lambda each: (-priority_of(each), started_ns(scheduler, each)))
    breaking = _breaking(given["pdbs"], weaker)
    candidates = [
        Candidate(
            other.metadata.key,
            scheduler.counted(quota, tree, other),
            priority_of(other),
            started_ns(scheduler, other),
            other.metadata.key in breaking,
        )
        for other in weaker
    ]
    choice = _reprieved(scheduler, nodes, node, pod, candidates)
    return ("Error", None) if choice is None else ("Success", choice)


def _reprieved(
    scheduler: Scheduler, nodes: Nodes, node: str, pod: Pod, candidates: Sequence[Candidate]
) -> Choice | None:
    """Gives the candidates back as far as node and quota have room, the most important first.

    None where the node and the quota both refuse one pod: upstream takes it away twice, fails, and skips the node.
    """
    quota, tree = scheduler.resolve(pod)
    account = scheduler.trees[tree].accounts[quota]
    request, limit = scheduler.counted(quota, tree, pod), limit_of(scheduler, account)
    rest = account.used
    for candidate in candidates:
        rest = _without(rest, candidate)
    away = [candidate.pod for candidate in candidates]
    gone: list[Candidate] = []
    violations = 0
    for candidate in sorted(candidates, key=lambda each: not each.violates):
        is_fitting = nodes.status(node, pod, [key for key in away if key != candidate.pod]) == "Success"
        after = add(rest, candidate.counted) if is_fitting else _without(add(rest, candidate.counted), candidate)
        has_room = not exceeding(mask(add(after, request), request), limit)
        if not is_fitting and not has_room:
            return None
        if not is_fitting or not has_room:
            gone.append(candidate)
            violations += candidate.violates and not is_fitting
        else:
            away.remove(candidate.pod)
        rest = after if has_room else rest
    return Choice(tuple(gone), violations)


def _without(rest: Amounts, candidate: Candidate) -> Amounts:
    return {name: max(size - candidate.counted.get(name, 0), 0) for name, size in rest.items()}


def _best_node(chosen: Mapping[str, Choice]) -> str:
    """Returns the node with the fewest broken budgets, lowest first victim, lowest sum, fewest victims, latest start; empty for none."""
    candidates = [node for node, choice in chosen.items() if choice.victims]
    return min(candidates, key=lambda node: (*_cost(chosen[node]), node), default="")


def _cost(choice: Choice) -> tuple[int, ...]:
    victims = choice.victims
    top = max(victim.priority for victim in victims)
    earliest = min(victim.started_ns for victim in victims if victim.priority == top)
    total = sum(victim.priority + 2**31 for victim in victims)
    return choice.violations, victims[0].priority, total, len(victims), -earliest


def _breaking(budgets: Sequence[Mapping[str, Any]], pods: Sequence[Pod]) -> set[str]:
    """Returns the pods, of those given most important first, that a disruption budget does not allow to go."""
    allowed = [budget["status"].get("disruptionsAllowed", 0) for budget in budgets]
    breaking = set()
    for pod in pods:
        labels = pod.metadata.labels or {}
        for index, budget in enumerate(budgets):
            wanted = budget["spec"].get("selector", {}).get("matchLabels", {})
            is_covered = wanted and wanted.items() <= labels.items()
            if budget["metadata"]["namespace"] != pod.metadata.namespace or not is_covered:
                continue
            if pod.metadata.name in (budget["status"].get("disruptedPods") or {}):
                continue
            allowed[index] -= 1
            if allowed[index] < 0:
                breaking.add(pod.metadata.key)
    return breaking


def _not_eligible(scheduler: Scheduler, nodes: Nodes, pod: Pod, statuses: Mapping[str, str]) -> str:
    if pod.spec.preemption_policy == "Never":
        return NEVER
    node = pod.status.nominated_node_name
    if node not in nodes.pods or statuses[node] == RESOLVED_BY_NOBODY:
        return ""
    quota, _ = scheduler.resolve(pod)
    leaving = [other for other in nodes.pods[node] if other.metadata.deletion_timestamp]
    waits = any(priority_of(other) < priority_of(pod) and scheduler.resolve(other)[0] == quota for other in leaving)
    return WAITS if waits else ""


def priority_of(pod: Pod) -> int:
    """Returns a pod's priority, 0 when it has none."""
    return pod.spec.priority or 0
