"""The `preempt` cases: a pod, its quota, and nodes of which only the amounts matter."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from services.quota_ledger.admission import AdmissionRules, limit_of, shortfall
from services.quota_ledger.parity.arrivals import Arrivals
from services.quota_ledger.preempt import Candidate, Given, RemovedTwice, best_node, reprieve
from services.quota_ledger.resolve import is_preemptible
from shared.domain.amounts import total
from shared.domain.requests import pod_requests, whole
from shared.kube.elastic_quota import DEFAULT
from shared.kube.instants import instant_ns
from shared.kube.pod import Pod
from shared.kube.quantity import amounts

UNRESOLVABLE = "UnschedulableAndUnresolvable"


class Nodes:
    """Nodes and the pods on them; a pod fits where the amounts suffice."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.allocatable: dict[str, dict[str, int]] = {}
        self.pods: dict[str, list[Pod]] = {}
        for event in given["events"]:
            if event["type"] == "nodeAdd":
                name = event["node"]["metadata"]["name"]
                self.allocatable[name] = amounts(event["node"]["status"]["allocatable"])
                self.pods[name] = []
        for event in given["events"]:
            if event["type"] == "podAdd":
                pod = msgspec.convert(event["pod"], Pod)
                if pod.spec.node_name in self.pods:
                    self.pods[pod.spec.node_name].append(pod)

    def fit(self, node: str, pod: Pod, without: Sequence[str] = ()) -> str:
        """Status of a pod on a node on which some pods are no more."""
        held = [other for other in self.pods[node] if other.metadata.key not in without]
        used = total(whole(pod_requests(other)) for other in held)
        room = self.allocatable[node]
        short = len(held) + 1 > room.get("pods", 0)
        for name, size in whole(pod_requests(pod)).items():
            if size > room.get(name, 0):
                return UNRESOLVABLE
            short |= size > 0 and size > room.get(name, 0) - used.get(name, 0)
        return "Unschedulable" if short else "Success"


def preempt(books: Arrivals, given: Mapping[str, Any]) -> dict[str, Any]:
    """What preemption makes of a pod that does not fit."""
    nodes, raw = Nodes(given), given["pod"]
    books.take({"type": "podAdd", "pod": raw})
    books.settle()
    pod = msgspec.convert(raw, Pod)
    quota, tree = books.resolve(pod)
    rules = AdmissionRules(runtime=given["args"].get("enableRuntimeQuota", True))
    request = books.counted(quota, tree, pod)
    short = shortfall(books.trees[tree], quota, request, preemptible=is_preemptible(pod), rules=rules)
    said: dict[str, Any] = {}
    if short is None:
        said["preFilter"] = {"code": "Success"}
        statuses = {node: nodes.fit(node, pod) for node in nodes.allocatable}
        said["filter"] = statuses
    else:
        said["preFilter"] = {"code": "Unschedulable", "stage": short.stage, "exceed": list(short.exceeded)}
        statuses = dict.fromkeys(nodes.allocatable, "Unschedulable")
    said["schedulable"] = "Success" in statuses.values()
    if said["schedulable"]:
        return said
    if reason := _not_eligible(books, nodes, pod, quota, statuses):
        return said | {"eligible": False, "reason": reason}
    judged: dict[str, dict[str, Any]] = {}
    found: dict[str, Given] = {}
    for node, status in statuses.items():
        if status != "Unschedulable":
            judged[node] = {"potential": False}
            continue
        code, gives = _dry_run(books, given, nodes, node, pod, rules)
        judged[node] = {"potential": True, "code": code}
        if gives is not None:
            found[node] = gives
            judged[node] |= {
                "victims": [victim.pod for victim in gives.victims],
                "numPDBViolations": gives.violations,
            }
    return said | {"eligible": True, "nodes": judged, "nominatedNode": best_node(found)}


def _dry_run(
    books: Arrivals, given: Mapping[str, Any], nodes: Nodes, node: str, pod: Pod, rules: AdmissionRules
) -> tuple[str, Given | None]:
    quota, tree = books.resolve(pod)
    account = books.trees[tree].accounts[quota]
    shielded = quota == DEFAULT and given["args"].get("disableDefaultQuotaPreemption", True)
    priority = pod.spec.priority or 0
    weaker = [
        other
        for other in nodes.pods[node]
        if not shielded
        and is_preemptible(other)
        and (other.spec.priority or 0) < priority
        and books.resolve(other) == (quota, tree)
    ]
    if not weaker:
        return UNRESOLVABLE, None
    keys = [other.metadata.key for other in weaker]
    if (status := nodes.fit(node, pod, keys)) != "Success":
        return status, None
    broken = _breaking(given["pdbs"], sorted(weaker, key=lambda each: _importance(books, each)))
    candidates = [
        Candidate(
            other.metadata.key,
            books.counted(quota, tree, other),
            other.spec.priority or 0,
            _started(books, other),
            other.metadata.key in broken,
        )
        for other in weaker
    ]
    request = books.counted(quota, tree, pod)
    try:
        gives = reprieve(
            candidates,
            request,
            account.used,
            limit_of(account, rules),
            lambda stay: nodes.fit(node, pod, [key for key in keys if key not in stay]) == "Success",
        )
    except RemovedTwice:
        return "Error", None
    return "Success", gives


def _breaking(budgets: Sequence[Mapping[str, Any]], pods: Sequence[Pod]) -> set[str]:
    """Pods, most important first, whose going would exceed what a budget allows."""
    allowed = [budget["status"].get("disruptionsAllowed", 0) for budget in budgets]
    broken = set()
    for pod in pods:
        labels = pod.metadata.labels or {}
        for index, budget in enumerate(budgets):
            wanted = budget["spec"].get("selector", {}).get("matchLabels", {})
            matches = wanted and wanted.items() <= labels.items()
            if budget["metadata"]["namespace"] != pod.metadata.namespace or not matches:
                continue
            if pod.metadata.name in (budget["status"].get("disruptedPods") or {}):
                continue
            allowed[index] -= 1
            if allowed[index] < 0:
                broken.add(pod.metadata.key)
    return broken


def _not_eligible(books: Arrivals, nodes: Nodes, pod: Pod, quota: str, statuses: Mapping[str, str]) -> str:
    if pod.spec.preemption_policy == "Never":
        return "not eligible due to preemptionPolicy=Never."
    node = pod.status.nominated_node_name
    if node in nodes.pods and statuses[node] != UNRESOLVABLE:
        for other in nodes.pods[node]:
            weaker = (other.spec.priority or 0) < (pod.spec.priority or 0)
            if other.metadata.deletion_timestamp and weaker and books.resolve(other)[0] == quota:
                return "not eligible due to a terminating pod on the nominated node."
    return ""


def _started(books: Arrivals, pod: Pod) -> int:
    return instant_ns(pod.status.start_time) if pod.status.start_time else books.now_ns


def _importance(books: Arrivals, pod: Pod) -> tuple[int, int]:
    return -(pod.spec.priority or 0), _started(books, pod)
