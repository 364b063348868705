"""Runs the domain `lownodeload`: rounds of the plugin, the order of pods, and the anomaly detector."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from services.descheduler.load_aware.anomaly_detector import Detector
from services.descheduler.load_aware.arguments import LowNodeLoadArgs, read_args
from services.descheduler.load_aware.balance import BalanceResult, PoolResult, balance
from services.descheduler.load_aware.classification import as_amounts
from services.descheduler.load_aware.measured_node import MeasuredNode, PodOnNode
from services.descheduler.load_aware.pod_order import order_key
from services.descheduler.load_aware.thresholds import completed
from services.descheduler.state.measured_nodes import MeasuredNodes, pod_on_node
from services.descheduler.state.observed_cluster import ObservedCluster
from shared.domain.component_config import BadConfig
from shared.domain.node_selection import meets
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    PodDeleted,
    PodObserved,
)
from shared.kube.instants import SECOND, instant_ns
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod

Given = Mapping[str, Any]

_MAPS = ("low", "high", "prod_low", "prod_high")


def answer(op: str, given: Given) -> dict[str, Any]:
    """Runs one case."""
    match op:
        case "podOrder":
            return _pod_order(given)
        case "detector":
            return _detector(given)
    try:
        args = read_args(given["args"], "args")
    except BadConfig:
        return {"argsInvalid": True}
    return {"rounds": rounds(given, [args] * len(given["rounds"]))}


def leaks(op: str, given: Given) -> bool:
    """Reports whether thresholds that upstream completes in a map of one pool are seen by another pool or a later round."""
    if op != "balance":
        return False
    try:
        args = read_args(given["args"], "args")
    except BadConfig:
        return False
    return any(
        completed(before) != completed(after)
        for leaked in _leaked(given)
        for before, after in zip(args.pools, leaked.pools, strict=True)
    )


def with_leaks(_: str, given: Given) -> dict[str, Any]:
    """Returns upstream's answer where completed thresholds stay in the configured maps."""
    return {"rounds": rounds(given, _leaked(given))}


def _leaked(given: Given) -> list[LowNodeLoadArgs]:
    """Returns the arguments of each round, with what the pools before left in the maps that they share."""
    args, found = read_args(given["args"], "args"), []
    labels = [(each["metadata"].get("labels") or {}) for each in given["nodes"]]
    for _ in given["rounds"]:
        pools = []
        for pool in args.pools:
            pools.append(
                pool._replace(
                    low=dict(pool.low),
                    high=dict(pool.high),
                    prod_low=dict(pool.prod_low),
                    prod_high=dict(pool.prod_high),
                )
            )
            if pool.selector is None or any(meets(pool.selector, each) for each in labels):
                after = completed(pool)
                for name in _MAPS:
                    cast("dict[str, float]", getattr(pool, name)).update(getattr(after, name))
        found.append(args._replace(pools=tuple(pools)))
    return found


def rounds(given: Given, args: Sequence[LowNodeLoadArgs]) -> list[dict[str, Any]]:
    """Runs the rounds of a case, each with arguments of its own; the State folds what the gateway would observe."""
    cluster = _Observed(given)
    detectors: tuple[dict[str, Detector], dict[str, Detector]] = ({}, {})
    answers = []
    for number, of_round in enumerate(given["rounds"]):
        now_ns = instant_ns(of_round["time"])
        measured = cluster.measured(of_round["nodeMetrics"], now_ns)
        evictor = _Evictor(given["evictor"])
        result = balance(args[number], measured, detectors, evictor, now_ns)
        detectors = result.detectors, result.prod_detectors
        answers.append(_round(result, evictor, now_ns, paused=args[number].paused))
        if given["removeEvicted"]:
            cluster.remove({call["pod"] for call in evictor.calls if call["accepted"]}, now_ns)
    return answers


class _Observed:
    """The recorded cluster, as the descheduler's State has it."""

    def __init__(self, given: Given) -> None:
        self._cluster, self._cache, self._seq = ObservedCluster(), MeasuredNodes(), 0
        self._names = [each["metadata"]["name"] for each in given["nodes"]]
        self._listed: dict[str, int] = {}
        for body in given["nodes"]:
            self._apply(NodeObserved(node=body["metadata"]["name"], object=msgspec.convert(body, Node)), 0)
        for body in given["pods"]:
            pod = msgspec.convert(body, Pod)
            key = pod.metadata.key
            self._listed[key] = len(self._listed)
            pod = replace(pod, metadata=replace(pod.metadata, uid=key))  # the recorded pods have none
            self._apply(PodObserved(pod=key, pod_uid=key, object=pod), 0)

    def measured(self, metrics: Sequence[Any], now_ns: int) -> list[MeasuredNode]:
        """Returns the nodes with new NodeMetric objects, all of them."""
        found = {each["metadata"]["name"]: msgspec.convert(each, NodeMetric) for each in metrics}
        for name in self._names:
            if name in found:
                self._apply(NodeMetricObserved(node=name, object=found[name]), now_ns)
            else:
                self._apply(NodeMetricDeleted(node=name), now_ns)
        return [self._in_listed_order(each) for each in self._cache.of(self._cluster, self._names)]

    def _in_listed_order(self, node: MeasuredNode) -> MeasuredNode:
        """Returns a node with its pods in the order in which upstream listed them, where the State has that of names."""
        return node._replace(pods=sorted(node.pods, key=lambda pod: self._listed[pod.key]))

    def remove(self, keys: Collection[str], now_ns: int) -> None:
        """The evicted pods are gone."""
        for key in sorted(keys):
            self._apply(PodDeleted(pod=key, pod_uid=key), now_ns)

    def _apply(self, event: Event, now_ns: int) -> None:
        self._seq += 1
        self._cluster.apply(RecordedEvent("cluster", self._seq, event, now_ns))


class _Evictor:
    """The recorded evictor.

    Attributes:
        calls: of `evict`, in order.
    """

    def __init__(self, given: Given) -> None:
        self._filtered = frozenset(given["filterReject"])
        self._refused = frozenset(given["evictReject"])
        self.calls: list[dict[str, Any]] = []

    def filter(self, pod: PodOnNode) -> bool:
        """Rejects the pods that are listed."""
        return pod.key not in self._filtered

    def is_exhausted(self) -> bool:
        """There is no limit."""
        return False

    def evict(self, pod: PodOnNode, node: str, reason: str) -> bool:
        """Refuses the pods that are listed, and those that the filter rejects."""
        accepted = pod.key not in self._refused
        self.calls.append({"pod": pod.key, "node": node, "accepted": accepted, "reason": reason})
        return accepted


def _round(result: BalanceResult, evictor: _Evictor, now_ns: int, *, paused: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "evictCalls": evictor.calls,
        "detectors": {
            "node": {name: _counted(each.now(now_ns)) for name, each in result.detectors.items()},
            "prod": {name: _counted(each.now(now_ns)) for name, each in result.prod_detectors.items()},
        },
    }
    if paused:
        return found
    return found | {"pools": [_pool(pool) for pool in result.pools], "processed": sorted(result.processed)}


def _pool(result: PoolResult) -> dict[str, Any]:
    nodes: dict[str, Any] = {name: {"class": "Dropped"} for name in result.selected}
    found = result.classified
    if found is None:
        return {"name": result.name, "selected": []}
    if found.nodes:
        for row, node in enumerate(found.nodes):
            limits = {
                "low": found.thresholds.low,
                "high": found.thresholds.high,
                "prodLow": found.thresholds.prod_low,
                "prodHigh": found.thresholds.prod_high,
            }
            nodes[node.name] = {
                "class": found.classes[row],
                "usage": as_amounts(found.resources, found.usage[row]),
                "prodUsage": as_amounts(found.resources, found.prod_usage[row]),
                **{name: as_amounts(found.percents.resources, each[row]) for name, each in limits.items()},
            }
    return {"name": result.name, "selected": list(result.selected), "nodes": nodes}


def _pod_order(given: Given) -> dict[str, Any]:
    pods = [pod_on_node(msgspec.convert(each, Pod)) for each in given["pods"]]
    namespace = {pod.pod.metadata.name: pod.key for pod in pods}
    usage = {namespace[name]: used for name, used in given["podUsage"].items()} if given["useUsage"] else {}
    pods.sort(key=order_key(usage, given.get("excess", {}), given.get("weights", {})))
    return {"order": [pod.pod.metadata.name for pod in pods]}


def _detector(given: Given) -> dict[str, Any]:
    timeout_ns = (given["timeoutSeconds"] or 60) * SECOND
    detector = Detector(timeout_ns, given["consecutiveAbnormalities"], given["consecutiveNormalities"])
    steps = []
    for event in given["events"]:
        now_ns = instant_ns(event["time"])
        match event["event"]:
            case "abnormal":
                detector = detector.mark_abnormal(now_ns)
            case "normal":
                detector = detector.mark_normal(now_ns)
            case "reset":
                detector = detector.reset(now_ns)
            case _:
                detector = detector.now(now_ns)
        steps.append(_state(detector))
    return {"steps": steps}


def _state(detector: Detector) -> dict[str, Any]:
    counts = detector.counts
    listed = [counts.total, counts.normal, counts.abnormal, counts.normal_in_a_row, counts.abnormal_in_a_row]
    return {"state": "anomaly" if detector.is_anomalous else "ok", "counter": listed}


def _counted(detector: Detector) -> dict[str, Any]:
    names = ("total", "normal", "abnormal", "consecutiveNormal", "consecutiveAbnormal")
    found = _state(detector)
    return {"state": found["state"], **dict(zip(names, found["counter"], strict=True))}
