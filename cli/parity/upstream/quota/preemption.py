"""Preemption inside a quota as upstream does it: one node at a time, among the pods of the same quota there.

Source: spec/quota.md 6.3.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cli.parity.upstream.quota.filter_result import limit_of, rejection_of
from cli.parity.upstream.quota.node_capacity import RESOLVED_BY_NOBODY, NodeCapacity
from cli.parity.upstream.quota.node_victims import Candidate, Choice, best_node, reprieved
from cli.parity.upstream.quota.overuse_revoke import started_ns
from cli.parity.upstream.quota.quirks import Quirk, Quirks
from cli.parity.upstream.quota.quota_plugin import QuotaPlugin
from services.quota_ledger.pods.pod_request import is_preemptible
from shared.kube.elastic_quota import DEFAULT
from shared.kube.pod import Pod

NEVER = "not eligible due to preemptionPolicy=Never."
WAITS = "not eligible due to a terminating pod on the nominated node."


def preempt(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Returns the filter results of a pod, and the victims on each node when it does not fit.

    Without upstream's way to preempt the answer ends where production's preemption begins; its choice is not predicted.
    """
    scheduler, nodes = QuotaPlugin.after(given, quirks), NodeCapacity(given)
    scheduler.take({"type": "podAdd", "pod": given["pod"]})
    scheduler.settle()
    pod = msgspec.convert(given["pod"], Pod)
    refused = rejection_of(scheduler, pod)
    statuses = {node: "Unschedulable" if refused else nodes.status(node, pod) for node in nodes.allocatable}
    found: dict[str, Any] = (
        {"preFilter": refused.refusal()} if refused else {"preFilter": {"code": "Success"}, "filter": statuses}
    )
    found["schedulable"] = "Success" in statuses.values()
    if found["schedulable"]:
        return found
    if pod.spec.preemption_policy == "Never":
        return found | {"eligible": False, "reason": NEVER}
    if Quirk.PREEMPTS_ON_A_NODE not in quirks:
        return found
    if reason := _waits_for_victims(scheduler, nodes, pod, statuses):
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
    return found | {"eligible": True, "nodes": seen, "nominatedNode": best_node(chosen)}


def _dry_run(
    scheduler: QuotaPlugin, given: Mapping[str, Any], nodes: NodeCapacity, node: str, pod: Pod
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
    info = scheduler.trees[tree].quotas[quota]
    request = scheduler.counted(quota, tree, pod)
    choice = reprieved(
        candidates,
        request,
        info.used,
        limit_of(scheduler, info),
        lambda without: nodes.status(node, pod, without) == "Success",
    )
    return ("Error", None) if choice is None else ("Success", choice)


def _breaking(budgets: Sequence[Mapping[str, Any]], pods: Sequence[Pod]) -> set[str]:
    """Returns the pods, of those given most important first, that a disruption budget does not allow to go."""
    allowed = [budget["status"].get("disruptionsAllowed", 0) for budget in budgets]
    breaking = set()
    for pod in pods:
        labels = pod.metadata.labels or {}
        for index, budget in enumerate(budgets):
            selector = budget["spec"].get("selector", {}).get("matchLabels", {})
            is_covered = selector and selector.items() <= labels.items()
            if budget["metadata"]["namespace"] != pod.metadata.namespace or not is_covered:
                continue
            if pod.metadata.name in (budget["status"].get("disruptedPods") or {}):
                continue
            allowed[index] -= 1
            if allowed[index] < 0:
                breaking.add(pod.metadata.key)
    return breaking


def _waits_for_victims(scheduler: QuotaPlugin, nodes: NodeCapacity, pod: Pod, statuses: Mapping[str, str]) -> str:
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
