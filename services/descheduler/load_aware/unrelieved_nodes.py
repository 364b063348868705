"""The nodes of high usage from which a cycle moves no pod, each with the reason: a cycle that moves nothing opens no
case, which would have it.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from services.descheduler.framework.cycle_context import CycleEvictor
from services.descheduler.load_aware.anomaly_detector import Detector
from services.descheduler.load_aware.arguments import LowNodeLoadArgs
from services.descheduler.load_aware.balance import BalanceResult, PoolResult
from services.descheduler.load_aware.classification import NodeClass
from services.descheduler.load_aware.measured_node import MeasuredNode, PodOnNode
from shared.domain.node_selection import meets

MOST_NODES = 20
"""Nodes that are recorded with a reason: in a wave of load the event would have a sentence for each of thousands."""

MOST_REASONS = 3
"""Reasons of pods that are given for a node, the most frequent first."""

_TARGETS = (NodeClass.LOW, NodeClass.BOTH_LOW)
_PROD_TARGETS = (NodeClass.PROD_LOW, NodeClass.BOTH_LOW)


class UnrelievedNodes(NamedTuple):
    """The nodes of high usage that no pod leaves.

    Attributes:
        reasons: node -> why, for at most `MOST_NODES`.
        others: the number of nodes beyond these.
    """

    reasons: dict[str, str]
    others: int = 0


def unrelieved_nodes(args: LowNodeLoadArgs, result: BalanceResult, evictor: CycleEvictor) -> UnrelievedNodes:
    """Returns the nodes that no pod leaves in this cycle, although their usage is high; none in a dry run of the plugin,
    which moves nothing anywhere.

    Args:
        result: of the cycle.
        evictor: with the pods that the cycle chose and passed over.
    """
    if args.dry_run:
        return UnrelievedNodes({})
    left = {each.node for each in evictor.chosen}
    found: dict[str, str] = {}
    others: set[str] = set()
    for pool in result.pools:
        if pool.classified is None:
            continue
        for prod, high, detectors in (
            (False, NodeClass.HIGH, result.detectors),
            (True, NodeClass.PROD_HIGH, result.prod_detectors),
        ):
            for row in pool.classified.rows(high):
                node = pool.classified.nodes[row]
                if node.name in left or node.name in found:
                    continue
                if len(found) < MOST_NODES:
                    found[node.name] = _why(args, pool, node, detectors, evictor, prod=prod)
                else:
                    others.add(node.name)
    return UnrelievedNodes(found, len(others))


def _why(
    args: LowNodeLoadArgs,
    pool: PoolResult,
    node: MeasuredNode,
    detectors: Mapping[str, Detector],
    evictor: CycleEvictor,
    *,
    prod: bool,
) -> str:
    """Returns the first gate that the node did not pass, in the order of the plugin (spec/descheduler.md 2.2)."""
    if any(each.node == node.name and each.prod == prod for each in pool.overloads):
        return _of_pods(args, node, evictor, prod=prod)
    detector = detectors.get(node.name)
    if detector is not None and not detector.is_anomalous:
        # Without the number so far, which would make the text another one in each cycle.
        return (
            f"its usage is not yet high for the {detector.abnormalities + 1} cycles in a row after which pods leave it"
        )
    assert pool.classified is not None
    if not any(pool.classified.rows(each) for each in (_PROD_TARGETS if prod else _TARGETS)):
        return "no node is below the low thresholds, so there is no destination"
    low = sum(len(pool.classified.rows(each)) for each in {*_TARGETS, *_PROD_TARGETS})
    nodes = "1 node is" if low == 1 else f"{low} nodes are"
    return f"{nodes} below the low thresholds, and numberOfNodes is {args.number_of_nodes}: more than that are needed"


def _of_pods(args: LowNodeLoadArgs, node: MeasuredNode, evictor: CycleEvictor, *, prod: bool) -> str:
    pods = [pod for pod in node.pods if pod.is_prod or not prod]
    if not pods:
        return "it has no pods that could leave it"
    limited = {each.pod: each.why for each in evictor.passed_over if each.node == node.name}
    reasons = Counter(_of_pod(args, node, pod, evictor, limited) for pod in pods)
    shown = [f"{why} ({number} of {len(pods)} pods)" for why, number in reasons.most_common(MOST_REASONS)]
    more = sum(reasons.values()) - sum(number for _, number in reasons.most_common(MOST_REASONS))
    return "; ".join([*shown, *([f"{more} pods for other reasons"] if more else [])])


def _of_pod(
    args: LowNodeLoadArgs, node: MeasuredNode, pod: PodOnNode, evictor: CycleEvictor, limited: Mapping[str, str]
) -> str:
    namespace = pod.pod.metadata.namespace
    if (args.included is not None and namespace not in args.included) or namespace in (args.excluded or ()):
        return f"evictableNamespaces leaves out namespace {namespace}"
    if why := evictor.refusal(pod) or limited.get(pod.key, ""):
        return why
    if args.pod_selectors and not any(
        meets(selector, pod.pod.metadata.labels or {}) for selector in args.pod_selectors
    ):
        return "no podSelector selects it"
    if args.node_fit and pod.key not in node.pod_usage:
        return "its usage is not reported, so that no destination can be checked"
    if evictor.is_exhausted():
        return "the limit of the cycle is used up"
    return "no node below the low thresholds has capacity for it"
