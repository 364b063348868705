"""ScaleDownBinPack: the order in which pods should go when their workloads shrink, so that nodes become empty.

With `EvictDirectly` the first ones are evicted. With `CalculateOnly` each pod gets its place in the order as an
annotation, by which the controller of its workload chooses the pods that it deletes when the workload shrinks.

Source: spec/descheduler.md 1.9; worked example X21.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, field

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.load_aware.arguments import NamespacesDocument, PodSelectorDocument
from services.descheduler.load_aware.measured_node import Amounts, MeasuredNode, PodOnNode
from services.descheduler.load_aware.pod_order import DELETION_COST, NEVER, age_key
from services.descheduler.plugins.pod_filter_and_request_fit import (
    PodChoice,
    pod_choice,
    selected_nodes,
)
from shared.domain.component_config import BadConfig, Strict, check_selector, converted
from shared.events.intents import FieldsDesired
from shared.kube.selectors import LabelSelector

CALCULATE_ONLY, EVICT_DIRECTLY = "CalculateOnly", "EvictDirectly"

COST_FIELDS = "deletion-cost"
"""The field group of the annotation on a pod."""


class _Document(Strict):
    paused: bool = False
    strategy: str = CALCULATE_ONLY
    max_pods_to_evict: Annotated[int, Meta(ge=1)] | None = None
    node_selector: LabelSelector | None = None
    pod_selectors: list[PodSelectorDocument] | None = None
    evictable_namespaces: NamespacesDocument | None = None
    resources: list[str] = field(default_factory=lambda: ["cpu", "memory"])
    resource_weights: dict[str, float] = field(default_factory=dict)


class BinPackArgs(NamedTuple):
    """The arguments.

    Attributes:
        most: evictions of one cycle; 0 for `CalculateOnly`.
        weights: resource -> weight, in order.
    """

    paused: bool
    most: int
    selector: LabelSelector | None
    choice: PodChoice
    weights: Mapping[str, float]


class RankedNode(NamedTuple):
    """A node whose pods may go.

    Attributes:
        score: what stays on it, of what may go; nodes with less go first.
        eligible: pods that may go, in order.
        skipped: pods that the arguments choose and a filter keeps.
    """

    node: MeasuredNode
    score: float
    eligible: tuple[PodOnNode, ...]
    skipped: tuple[PodOnNode, ...]


def read_args(plain: Mapping[str, Any], path: str) -> BinPackArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _Document, path)
    check_selector(given.node_selector, f"{path}.nodeSelector")
    if given.strategy not in (CALCULATE_ONLY, EVICT_DIRECTLY):
        raise BadConfig(f"{path}.strategy", f"{given.strategy!r}; give {CALCULATE_ONLY} or {EVICT_DIRECTLY}")
    if given.strategy == EVICT_DIRECTLY and given.max_pods_to_evict is None:
        raise BadConfig(f"{path}.maxPodsToEvict", f"absent; {EVICT_DIRECTLY} needs 1 or more")
    for name, weight in given.resource_weights.items():
        if not isfinite(weight) or weight <= 0:
            raise BadConfig(f"{path}.resourceWeights.{name}", f"{weight}; give a number above 0")
    return BinPackArgs(
        paused=given.paused,
        most=(given.max_pods_to_evict or 0) if given.strategy == EVICT_DIRECTLY else 0,
        selector=given.node_selector,
        choice=pod_choice(given.evictable_namespaces, given.pod_selectors, path),
        weights={name: given.resource_weights.get(name, 1.0) for name in given.resources},
    )


def scale_down_bin_pack(context: CycleContext) -> Findings:
    """Evicts pods in the order of their ranks until the limit of the arguments, or has the ranks written on them."""
    args: BinPackArgs = context.args
    evicted = 0
    if args.paused:
        return Findings()
    nodes = ranked_nodes(context, args)
    if not args.most:
        return Findings(desired=tuple(_costs(nodes)))
    for ranked in nodes:
        for pod in ranked.eligible:
            if evicted == args.most:
                return Findings()
            evicted += context.evictor.evict(pod, ranked.node.name, f"bin packing, node score {ranked.score:.3f}")
    return Findings()


def _costs(nodes: Sequence[RankedNode]) -> Iterator[FieldsDesired]:
    """Yields the annotation of each pod that does not have it yet: its place in the order of all, or `NEVER`."""
    ranks = [(pod, rank) for rank, pod in enumerate(pod for each in nodes for pod in each.eligible)]
    for pod, rank in [*ranks, *((pod, NEVER) for each in nodes for pod in each.skipped)]:
        metadata, text = pod.pod.metadata, str(rank)
        if (metadata.annotations or {}).get(DELETION_COST) != text:
            yield FieldsDesired(
                resource="pods",
                name=pod.key,
                fields=COST_FIELDS,
                patch={"metadata": {"annotations": {DELETION_COST: text}}},
                uid=metadata.uid,
            )


def ranked_nodes(context: CycleContext, args: BinPackArgs) -> list[RankedNode]:
    """Returns the nodes with pods that the arguments choose, by score, number of pods that may go, and name."""
    found = []
    for node in selected_nodes(context.nodes, args.selector):
        targets = [pod for pod in node.pods if args.choice.allows(pod)]
        eligible = [pod for pod in targets if context.evictor.filter(pod)]
        if not targets:
            continue
        uids = {pod.pod.metadata.uid for pod in eligible}
        stays = [pod for pod in node.pods if pod.pod.metadata.uid not in uids]
        ordered = sorted(eligible, key=lambda pod: _order(pod, node, args.weights))
        skipped = tuple(pod for pod in targets if pod.pod.metadata.uid not in uids)
        found.append(RankedNode(node, node_score(node, stays, eligible, args.weights), tuple(ordered), skipped))
    found.sort(key=lambda each: (each.score, len(each.eligible), each.node.name))
    return found


def node_score(
    node: MeasuredNode, stays: Sequence[PodOnNode], goes: Sequence[PodOnNode], weights: Mapping[str, float]
) -> float:
    """Returns the weighted requests of pods that stay, divided by those of pods that go; 0 where both are 0, infinite
    where only the latter are.
    """
    kept = sum(size(pod.requests, node, weights) for pod in stays)
    freed = sum(size(pod.requests, node, weights) for pod in goes)
    return kept / freed if freed else inf if kept else 0.0


def size(requests: Amounts, node: MeasuredNode, weights: Mapping[str, float]) -> float:
    """Returns sum(weight * request / allocatable) over the resources that the node has."""
    return sum(
        weight * requests.get(name, 0) / node.allocatable[name]
        for name, weight in weights.items()
        if node.allocatable.get(name, 0) > 0
    )


def _order(pod: PodOnNode, node: MeasuredNode, weights: Mapping[str, float]) -> tuple[float, int, str, str]:
    metadata = pod.pod.metadata
    return (-size(pod.requests, node, weights), age_key(pod.pod), metadata.namespace, metadata.name)
