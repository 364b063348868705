"""The `loadaware` vectors: estimates, arguments, and scenarios of informer events, reservations and questions.

A scenario drives a `LoadAwareLedger` as the scheduler's State does, but by upstream's events: its informers see the object
before each update, and its cache reserves pods that no event has shown yet.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from services.scheduler.plugins.load_aware.args import LoadAwareArgs, decode_args
from services.scheduler.plugins.load_aware.assignment import (
    assigned_at_ns,
    counts_anew,
    deadline_ns,
    has_ended,
    initialized_at_ns,
    uses_its_node,
    windows_of,
)
from services.scheduler.plugins.load_aware.estimate import estimate_node, estimate_pod
from services.scheduler.plugins.load_aware.ledger import LoadAwareLedger
from services.scheduler.plugins.load_aware.report import Vector, report_time_ns
from shared.domain.priority import priority
from shared.domain.qos import qos
from shared.kube.instants import duration_ns, duration_text, instant_ns, instant_text
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod

_DURATIONS = ("usageAggregatedDuration", "scoreAggregatedDuration")


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What our code says to one case's input, in the shape of the case's output."""
    args = decode_args(given["args"]).with_defaults()
    if op == "estimate_pod":
        return _estimate_pod(args, msgspec.convert(given["pod"], Pod), instant_ns(given["timestamp"]))
    if op == "estimate_node":
        amounts = estimate_node(msgspec.convert(given["node"], Node))
        return {"allocatable": {name: amounts.get(name, 0) for name in args.resources()}}
    if op == "args":
        return {
            "valid": not args.problems(),
            "defaulted": _plain(args),
            "vectorResources": list(args.resources()),
        }
    scenario = Scenario(args, msgspec.convert(given["nodes"], list[Node]))
    return scenario.play(given["steps"])


class Scenario:
    """The ledger under upstream's events.

    Attributes:
        rows: node name -> row of the ledger.
        seen: uid -> the pod of its last event.
        counted: uid -> (node, pod) as it counts in the ledger.
        reported_ns: node name -> time of its last report that had one.
    """

    def __init__(self, args: LoadAwareArgs, nodes: Iterable[Node]) -> None:
        self.ledger = LoadAwareLedger(args)
        self.rows: dict[str, int] = {}
        self.seen: dict[str, Pod] = {}
        self.counted: dict[str, tuple[str, Pod]] = {}
        self.reported_ns: dict[str, int] = {}
        self.nodes = [node.metadata.name for node in nodes]
        for node in nodes:
            self.ledger.set_node(self.row(node.metadata.name), node)

    def row(self, node: str) -> int:
        """The node's row, given at its first mention."""
        return self.rows.setdefault(node, len(self.rows))

    def play(self, steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Take all steps, and describe what came of them."""
        results = []
        for index, step in enumerate(steps):
            now_ns = instant_ns(step["at"])
            if step["do"] == "query":
                results.append({"step": index} | self.query(step, now_ns))
            elif "nodeMetric" in step:
                self.reported(step["do"], msgspec.convert(step["nodeMetric"], NodeMetric))
            else:
                self.moved(step["do"], msgspec.convert(step["pod"], Pod), step.get("node", ""), now_ns)
        return {"results": results, "assignCache": {node: self.describe(node) for node in self.nodes}}

    def reported(self, did: str, metric: NodeMetric) -> None:
        """A report came, changed, or went."""
        node = metric.metadata.name
        if did == "nodeMetricDelete":
            self.ledger.set_metric(self.row(node), None)
            self.forget_if_empty(node)
            return
        self.ledger.set_metric(self.row(node), metric, self.reported_ns.get(node))
        at = report_time_ns(metric)
        if at is not None:
            self.reported_ns[node] = at

    def moved(self, did: str, pod: Pod, node: str, now_ns: int) -> None:
        """A pod's event, or the scheduling cycle's word about it."""
        uid = pod.metadata.uid
        match did:
            case "reserve":
                self.count(pod, node, now_ns)
            case "unreserve" | "podDelete":
                self.drop(uid)
            case "podUpdate":
                before, self.seen[uid] = self.seen.get(uid), pod
                self.updated(before, pod, now_ns)
            case "podAdd":
                self.seen[uid] = pod
                self.count(pod, pod.spec.node_name, now_ns)

    def updated(self, before: Pod | None, pod: Pod, now_ns: int) -> None:
        """A pod changed; what is kept of it is replaced only by a change that counts."""
        uid = pod.metadata.uid
        if before is not None and before.spec.node_name != pod.spec.node_name and before.spec.node_name:
            self.drop(uid)
        counted = self.counted.get(uid)
        if counted is not None and pod.spec.node_name and has_ended(pod):
            self.drop(uid)
        elif counted is None or counts_anew(counted[1], pod):
            self.count(pod, pod.spec.node_name, now_ns)

    def count(self, pod: Pod, node: str, now_ns: int) -> None:
        """Count a pod on a node, if it uses anything there."""
        if node and uses_its_node(pod):
            self.counted[pod.metadata.uid] = (node, pod)
            self.ledger.assign(pod.metadata.uid, self.row(node), pod, assigned_at_ns(pod, now_ns))

    def drop(self, uid: str) -> None:
        """Count a pod no longer."""
        counted = self.counted.pop(uid, None)
        self.ledger.release(uid)
        if counted is not None:
            self.forget_if_empty(counted[0])

    def forget_if_empty(self, node: str) -> None:
        """A node with neither report nor pods leaves upstream's cache, and with it the time of its last report."""
        row = self.row(node)
        if self.ledger.report(row) is None and not any(True for _ in self.ledger.shares(row)):
            self.reported_ns.pop(node, None)

    def query(self, step: Mapping[str, Any], now_ns: int) -> dict[str, Any]:
        """Filter and score for an incoming pod on one node."""
        pod, rows = msgspec.convert(step["pod"], Pod), np.array([self.row(step["node"])])
        trial = self.ledger.trial()
        code = int(trial.filter(pod, rows, now_ns)[0])
        return {
            "filter": {
                "code": "Unschedulable" if code else "Success",
                "reasons": [self.ledger.reasons[code].text] if code else [],
            },
            "score": int(trial.score(pod, rows, now_ns)[0]),
            "scoreCode": "Success",
        }

    def describe(self, node: str) -> dict[str, Any] | None:
        """A node's accounts as upstream's debugging view prints them."""
        row = self.row(node)
        report, shares = self.ledger.report(row), list(self.ledger.shares(row))
        if report is None and not shares:
            return None
        pods = sorted(held.pod for held, _ in shares)
        if report is None:
            return {"hasNodeMetric": False, "pods": pods}

        def names(part: str) -> list[str]:
            return sorted(held.pod for held, share in shares if getattr(share, part) is not None)

        def total(part: str, *more: Vector) -> dict[str, int]:
            vectors = [*more, *(vector for _, share in shares if (vector := getattr(share, part)) is not None)]
            return {name: sum(vector[i] for vector in vectors) for i, name in enumerate(self.ledger.resources)}

        return {
            "hasNodeMetric": True,
            "pods": pods,
            "prodUsage": total("prod_usage", report.system),
            "nodeDelta": total("node_delta"),
            "nodeDeltaPods": names("node_delta"),
            "prodDelta": total("prod_delta"),
            "prodDeltaPods": names("prod_delta"),
            "nodeEstimated": total("estimated"),
            "nodeEstimatedPods": names("estimated"),
        }


def _estimate_pod(args: LoadAwareArgs, pod: Pod, assigned_ns: int) -> dict[str, Any]:
    deadline = deadline_ns(windows_of(pod, args), assigned_ns, initialized_at_ns(pod))
    return {
        "estimate": estimate_pod(pod, args),
        "deadline": None if deadline is None else instant_text(deadline),
        "priorityClass": priority(pod).value,
        "qosClass": qos(pod).value,
        "vectorResources": list(args.resources()),
    }


def _plain(args: LoadAwareArgs) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(args))
    for name in _DURATIONS:
        if name in plain.get("aggregated", {}):
            plain["aggregated"][name] = duration_text(duration_ns(plain["aggregated"][name]))
    return plain
