"""The `loadaware` cases: estimates, arguments, and scenarios of observations, reservations and queries.

A scenario's steps are the events that the service reads: pods and NodeMetrics as the cluster shows them, `reserve` as a
cycle's placement, `unreserve` as the gateway's answer that it was not bound. A query is a pod that waits: the reason is
the fused evaluation's with the filter alone, the score with the scorer alone (the record scores rejected nodes too),
and a cycle with both has to agree. The bookkeeping is read from the view that the services engine offers. Estimates of
single pods are calls of the function that the plugin calls.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cli.parity.runners.scheduler.recorded_cluster import Cluster
from services.scheduler.extender_server.debug_views import plugin_views
from services.scheduler.plugins.load_aware_scheduling.args import LoadAwareArgs, decode_args
from services.scheduler.plugins.load_aware_scheduling.estimate_window import deadline_ns, windows_of
from services.scheduler.plugins.load_aware_scheduling.plugin import LoadAwareCache, LoadAwareScheduling
from services.scheduler.plugins.load_aware_scheduling.pod_estimate import estimate_pod
from services.scheduler.state.pod_scheduling_record import true_since_ns
from shared.domain.priority import priority
from shared.domain.qos import qos
from shared.events import Cause
from shared.events.cluster import BindRejected, NodeMetricDeleted, NodeMetricObserved
from shared.events.scheduling import CycleDecided, PodOutcome, PodPlaced
from shared.kube.instants import duration_ns, duration_text, instant_ns, instant_text
from shared.kube.json_text import json_value
from shared.kube.node import NodeMetric
from shared.kube.pod import Pod

_DURATIONS = ("usageAggregatedDuration", "scoreAggregatedDuration")
_NAME = LoadAwareScheduling.name
_SUMS = ("prodUsage", "nodeDelta", "prodDelta", "nodeEstimated")
_LISTS = ("nodeDeltaPods", "prodDeltaPods", "nodeEstimatedPods")


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Answers one case in the shape of its output."""
    args = decode_args(given["args"]).with_defaults()
    if op == "estimate_pod":
        return _estimate_pod(args, msgspec.convert(given["pod"], Pod), instant_ns(given["timestamp"]))
    if op == "args":
        return {
            "valid": not args.problems(),
            "defaulted": _plain(args),
            "vectorResources": list(args.resources()),
        }
    if op == "estimate_node":
        scenario = Scenario(given["args"], args, [given["node"]])
        return {"allocatable": scenario.allocatable(given["node"]["metadata"]["name"])}
    return Scenario(given["args"], args, given["nodes"]).play(given["steps"])


class Scenario(Cluster):
    """Nodes under a history of pods and reports."""

    def __init__(self, given: Mapping[str, Any], args: LoadAwareArgs, nodes: Iterable[Mapping[str, Any]]) -> None:
        super().__init__((_NAME,), {_NAME: given})
        self._plugin = self.plugins[_NAME]
        self._resources = args.resources()
        self._nodes = [node["metadata"]["name"] for node in nodes]
        self._placed: dict[str, int] = {}  # uid -> `scheduling` seq of its placement
        for node in nodes:
            self.observe_node(node)

    def allocatable(self, node: str) -> dict[str, int]:
        """Returns the amounts that usage on a node is compared with, by resource."""
        cache = self.engine.cache
        cache.settle()
        load_cache = cache.plugin_caches[self._plugin]
        assert isinstance(load_cache, LoadAwareCache), "the account of that plugin"
        sizes = load_cache.load_cache.arrays.allocatable[:, cache.table.rows[node]].tolist()
        return dict(zip(self._resources, sizes, strict=True))

    def play(self, steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Takes all steps, and describes the outcome."""
        results = []
        for number, step in enumerate(steps):
            now_ns = instant_ns(step["at"])
            if step["do"] == "query":
                results.append({"step": number} | self._query(step, now_ns))
            elif "nodeMetric" in step:
                self._report(step["do"], msgspec.convert(step["nodeMetric"], NodeMetric), now_ns)
            else:
                self._move(step["do"], msgspec.convert(step["pod"], Pod), step.get("node", ""), now_ns)
        return {"results": results, "assignCache": {node: self._described(node) for node in self._nodes}}

    def _report(self, did: str, metric: NodeMetric, now_ns: int) -> None:
        node = metric.metadata.name
        gone = did == "nodeMetricDelete"
        event = NodeMetricDeleted(node=node) if gone else NodeMetricObserved(node=node, object=metric)
        self.observe(event, at_ns=now_ns)

    def _move(self, did: str, pod: Pod, node: str, now_ns: int) -> None:
        match did:
            case "reserve":
                self._place(pod, node, now_ns)
            case "unreserve":
                rejected = BindRejected(pod=pod.metadata.key, pod_uid=pod.metadata.uid, reason="unreserved")
                cause = Cause("scheduling", self._placed[pod.metadata.uid])
                self.engine.append("cluster", rejected, now_ns, cause)
            case "podDelete":
                self.delete_pod(pod)
            case _:
                self.observe_pod(pod, now_ns)

    def _place(self, pod: Pod, node: str, now_ns: int) -> None:
        """Folds a cycle that places the pod on the node, also where a filter would reject it."""
        view, uid = self.engine.view, pod.metadata.uid
        if uid not in view.pods:  # a cycle places pods that it has seen
            self.observe_pod(pod, now_ns)
        number, outcome = view.cycle + 1, PodOutcome(pod_uid=uid, class_index=0, node=node)
        decided = CycleDecided(cycle=number, pods=(outcome,), seen=dict(view.positions), now_ns=now_ns)
        self.engine.append("scheduling", decided, now_ns)
        placed = PodPlaced(pod_uid=uid, pod=pod.metadata.key, node=node, cycle=number, request={})
        self._placed[uid] = self.engine.append("scheduling", placed, now_ns)

    def _query(self, step: Mapping[str, Any], now_ns: int) -> dict[str, Any]:
        node = step["node"]
        with self.waiting(step["pod"], now_ns) as (_, evaluation, _):
            refusal = evaluation.refusals(self._plugin).get(node)
            scores = evaluation.scores(evaluation.evaluate((), (self._plugin,)))
        return {
            "filter": {
                "code": "Success" if refusal is None else refusal.status()["code"],
                "reasons": [] if refusal is None else refusal.reasons,
            },
            "score": scores[_NAME][node] if _NAME in scores else 0,
            "scoreCode": "Success",
        }

    def _described(self, node: str) -> dict[str, Any] | None:
        view = plugin_views(self.engine.cache)[f"{_NAME}/node"](node)
        if not view:
            return None
        pods = sorted(pod["pod"] for pod in view["pods"])
        if "updateTime" not in view:
            return {"hasNodeMetric": False, "pods": pods}
        zeros = dict.fromkeys(self._resources, 0)
        return {
            "hasNodeMetric": True,
            "pods": pods,
            **{name: zeros | view[name] for name in _SUMS},
            **{name: view[name] for name in _LISTS},
        }


def _estimate_pod(args: LoadAwareArgs, pod: Pod, assigned_ns: int) -> dict[str, Any]:
    _, initialized_ns = true_since_ns(pod)
    deadline = deadline_ns(windows_of(pod, args), assigned_ns, initialized_ns or None)
    return {
        "estimate": estimate_pod(pod, args),
        "deadline": None if deadline is None else instant_text(deadline),
        "priorityClass": priority(pod).value,
        "qosClass": qos(pod).value,
        "vectorResources": list(args.resources()),
    }


def _plain(args: LoadAwareArgs) -> dict[str, Any]:
    plain: dict[str, Any] = json_value(args)
    for name in _DURATIONS:
        if name in plain.get("aggregated", {}):
            plain["aggregated"][name] = duration_text(duration_ns(plain["aggregated"][name]))
    return plain
