"""FragmentationAware: a pod leaves a node whose resources are requested unevenly, if that makes them more even.

    score = population standard deviation of requested / allocatable over the resources that the node has

Source: spec/descheduler.md 1.9; worked example X20.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, field

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.load_aware.arguments import NamespacesDocument, PodSelectorDocument
from services.descheduler.load_aware.measured_node import MeasuredNode, PodOnNode
from services.descheduler.plugins.pod_filter_and_request_fit import (
    PodChoice,
    fits_another_node,
    pod_choice,
    requested_shares,
    selected_nodes,
)
from shared.domain.component_config import BadConfig, Strict, check_selector, converted
from shared.events.descheduling import Cause
from shared.kube.selectors import LabelSelector

Fraction = Annotated[float, Meta(ge=0)]


class _Document(Strict):
    paused: bool = False
    dry_run: bool = False
    node_selector: LabelSelector | None = None
    evictable_namespaces: NamespacesDocument | None = None
    pod_selectors: list[PodSelectorDocument] | None = None
    node_fit: bool = True
    resources: list[str] = field(default_factory=lambda: ["cpu", "memory"])
    imbalance_threshold: Fraction = 0.15
    min_improvement_threshold: Fraction = 0.02


class FragmentationArgs(NamedTuple):
    """The arguments.

    Attributes:
        threshold: nodes with a larger score are sources.
        improvement: a pod leaves only for a larger gain.
    """

    paused: bool
    dry_run: bool
    selector: LabelSelector | None
    choice: PodChoice
    node_fit: bool
    resources: tuple[str, ...]
    threshold: float
    improvement: float


def read_args(plain: Mapping[str, Any], path: str) -> FragmentationArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _Document, path)
    check_selector(given.node_selector, f"{path}.nodeSelector")
    if not given.resources or len(set(given.resources)) < len(given.resources):
        raise BadConfig(f"{path}.resources", f"{given.resources!r}; give at least one, each once")
    return FragmentationArgs(
        paused=given.paused,
        dry_run=given.dry_run,
        selector=given.node_selector,
        choice=pod_choice(given.evictable_namespaces, given.pod_selectors, path),
        node_fit=given.node_fit,
        resources=tuple(given.resources),
        threshold=given.imbalance_threshold,
        improvement=given.min_improvement_threshold,
    )


def fragmentation_aware(context: CycleContext) -> Findings:
    """Chooses the pod with the largest gain of each node whose score is above the threshold."""
    args: FragmentationArgs = context.args
    if args.paused:
        return Findings()
    nodes = selected_nodes(context.nodes, args.selector)
    causes = []
    sources = [each for each in nodes if imbalance(each, args.resources) > args.threshold]
    for node in sources:
        before = imbalance(node, args.resources)
        causes.append(
            Cause(node.name, "fragmentation", "thousandths", round(before * 1000), round(args.threshold * 1000))
        )
        best = _best(context, args, node, nodes)
        if best is not None:
            pod, gain = best
            reason = f"node is fragmented, imbalance({before:.3f})>threshold({args.threshold:.3f}), gain {gain:.3f}"
            context.evictor.evict(pod, node.name, reason)
    return Findings(tuple(causes), tuple(each.name for each in sources))


def _best(
    context: CycleContext, args: FragmentationArgs, node: MeasuredNode, nodes: Sequence[MeasuredNode]
) -> tuple[PodOnNode, float] | None:
    """Returns the pod with the largest gain above the least improvement, and that; the first of equal ones."""
    before = imbalance(node, args.resources)
    best: tuple[PodOnNode, float] | None = None
    for pod in node.pods:
        gain = before - imbalance(node, args.resources, pod)
        if gain <= args.improvement or (best is not None and gain <= best[1]):
            continue
        if not args.choice.allows(pod) or not context.evictor.filter(pod):
            continue
        if not args.node_fit or fits_another_node(pod, node.name, nodes):
            best = pod, gain
    return best


def imbalance(node: MeasuredNode, resources: Sequence[str], without: PodOnNode | None = None) -> float:
    """Returns the score of a node, without one of its pods."""
    gone = without.requests if without is not None else {}
    requested = {name: node.requested.get(name, 0) - gone.get(name, 0) for name in resources}
    return deviation(requested_shares(requested, node.allocatable, resources))


def deviation(shares: Sequence[float]) -> float:
    """Returns the population standard deviation; 0 for no shares."""
    if not shares:
        return 0.0
    mean = sum(shares) / len(shares)
    return sqrt(sum((each - mean) * (each - mean) for each in shares) / len(shares))
