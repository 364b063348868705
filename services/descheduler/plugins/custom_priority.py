"""CustomPriority: pods leave nodes of a level for nodes of the later ones, such as from expensive nodes to cheap ones.

Each node belongs to the first level whose selector selects it. `BestEffort` moves each pod that fits a later level;
`DrainNode` moves the pods of a node only if all of them fit together.

Source: spec/descheduler.md 1.9.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import field

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.framework.node_affinity_and_taints import admits
from services.descheduler.load_aware.arguments import NamespacesDocument, PodSelectorDocument
from services.descheduler.load_aware.measured_node import MeasuredNode, PodOnNode
from services.descheduler.load_aware.node_fit_on_targets import free_amount
from services.descheduler.plugins.pod_filter_and_request_fit import (
    PodChoice,
    fits_another_node,
    pod_choice,
    selected_nodes,
)
from shared.domain.component_config import BadConfig, Strict, check_one_of, check_selector, converted
from shared.domain.node_selection import meets
from shared.kube.selectors import LabelSelector

BEST_EFFORT, DRAIN_NODE = "BestEffort", "DrainNode"
FEWEST_LEVELS = 2
MOST_MISFITS = 5
"""Pods of a node in a row that fit nowhere, after which no more of them are tried."""


class LevelDocument(Strict):
    """A level; the thresholds have no effect, as upstream."""

    name: str = ""
    node_selector: LabelSelector | None = None
    keep_threshold: dict[str, float] | None = None
    reject_threshold: dict[str, float] | None = None


class _Document(Strict):
    paused: bool = False
    dry_run: bool = False
    evictable_namespaces: NamespacesDocument | None = None
    node_selector: LabelSelector | None = None
    pod_selectors: list[PodSelectorDocument] | None = None
    node_fit: bool = True
    eviction_order: list[LevelDocument] = field(default_factory=list)
    mode: str = BEST_EFFORT
    auto_cordon: bool = False


class PriorityArgs(NamedTuple):
    """The arguments.

    Attributes:
        levels: name and selector, from which pods leave first.
        notes: what of the arguments has no effect.
    """

    paused: bool
    dry_run: bool
    choice: PodChoice
    selector: LabelSelector | None
    node_fit: bool
    levels: tuple[tuple[str, LabelSelector], ...]
    drains: bool
    notes: tuple[str, ...]


def read_args(plain: Mapping[str, Any], path: str) -> PriorityArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _Document, path)
    check_selector(given.node_selector, f"{path}.nodeSelector")
    check_one_of(given.mode, (BEST_EFFORT, DRAIN_NODE), f"{path}.mode")
    if len(given.eviction_order) < FEWEST_LEVELS:
        raise BadConfig(f"{path}.evictionOrder", f"{len(given.eviction_order)} levels; give at least {FEWEST_LEVELS}")
    notes = ["autoCordon has no effect; cordon a node with koord drain"] if given.auto_cordon else []
    levels: dict[str, LabelSelector] = {}
    for number, level in enumerate(given.eviction_order):
        where = f"{path}.evictionOrder[{number}]"
        if not level.name or level.name in levels:
            raise BadConfig(f"{where}.name", f"{level.name!r}; give each level a name of its own")
        if level.node_selector is None:
            raise BadConfig(f"{where}.nodeSelector", "absent; a level needs the selector of its nodes")
        check_selector(level.node_selector, f"{where}.nodeSelector")
        levels[level.name] = level.node_selector
        if level.keep_threshold is not None or level.reject_threshold is not None:
            notes.append(f"keepThreshold and rejectThreshold of level {level.name} have no effect, as upstream")
    return PriorityArgs(
        paused=given.paused,
        dry_run=given.dry_run,
        choice=pod_choice(given.evictable_namespaces, given.pod_selectors, path),
        selector=given.node_selector,
        node_fit=given.node_fit,
        levels=tuple(levels.items()),
        drains=given.mode == DRAIN_NODE,
        notes=tuple(notes),
    )


def custom_priority(context: CycleContext) -> Findings:
    """Chooses pods of the nodes of each level but the last that go to later ones."""
    args: PriorityArgs = context.args
    if args.paused:
        return Findings()
    levels = _by_level(selected_nodes(context.nodes, args.selector), args)
    for number, (name, _) in enumerate(args.levels[:-1]):
        targets = [node for later in levels[number + 1 :] for node in later]
        remaining = _Remaining(targets)
        for node in levels[number] if targets else ():
            pods = _candidates(context, args, node)
            going = remaining.all_or_none(pods) if args.drains else _fitting(args, pods, node, targets)
            _evict(context, args, node, going, f"nodes of level {name} come first", targets)
    return Findings()


def _by_level(nodes: Iterable[MeasuredNode], args: PriorityArgs) -> list[list[MeasuredNode]]:
    """Returns the nodes of each level: of the first that selects them."""
    levels: list[list[MeasuredNode]] = [[] for _ in args.levels]
    for node in nodes:
        labels = node.node.metadata.labels or {}
        place = next((n for n, (_, selector) in enumerate(args.levels) if meets(selector, labels)), None)
        if place is not None:
            levels[place].append(node)
    return levels


def _candidates(context: CycleContext, args: PriorityArgs, node: MeasuredNode) -> list[PodOnNode]:
    """Returns the pods of a node that may leave, the smallest first."""
    pods = [pod for pod in node.pods if args.choice.allows(pod) and context.evictor.filter(pod)]
    return sorted(pods, key=lambda pod: (pod.requests.get("cpu", 0), pod.requests.get("memory", 0), pod.key))


def _fitting(
    args: PriorityArgs, pods: Sequence[PodOnNode], node: MeasuredNode, targets: Sequence[MeasuredNode]
) -> list[PodOnNode]:
    """Returns the pods that fit a target, until too many in a row do not."""
    found, misfits = [], 0
    for pod in pods:
        if not args.node_fit or fits_another_node(pod, node.name, targets):
            found.append(pod)
            misfits = 0
            continue
        misfits += 1
        if misfits == MOST_MISFITS:
            break
    return found


class _Remaining:
    """Capacity of the targets that is left once the pods that were promised a place are there."""

    def __init__(self, targets: Sequence[MeasuredNode]) -> None:
        self._targets = targets
        self._taken: dict[str, dict[str, int]] = {node.name: {} for node in targets}

    def all_or_none(self, pods: Sequence[PodOnNode]) -> Sequence[PodOnNode]:
        """Takes a place for each pod on the first target that it fits, and returns all; none if one fits nowhere."""
        before = {name: dict(taken) for name, taken in self._taken.items()}
        if all(self._take(pod) for pod in pods):
            return pods
        self._taken = before
        return ()

    def _take(self, pod: PodOnNode) -> bool:
        needed = {**pod.requests, "pods": 1}
        for node in self._targets:
            taken = self._taken[node.name]
            if admits(node.node, pod.pod) and all(
                _free(node, name) - taken.get(name, 0) >= size for name, size in needed.items() if size > 0
            ):
                for name, size in needed.items():
                    taken[name] = taken.get(name, 0) + size
                return True
        return False


def _free(node: MeasuredNode, name: str) -> int:
    """Returns what the pods of a node leave of a resource, or of the number of pods."""
    return node.allocatable.get("pods", 0) - len(node.pods) if name == "pods" else free_amount(node, name)


def _evict(
    context: CycleContext,
    args: PriorityArgs,
    node: MeasuredNode,
    pods: Sequence[PodOnNode],
    reason: str,
    targets: Sequence[MeasuredNode],
) -> None:
    allowed = frozenset(each.name for each in targets)
    group = node.name if args.drains else ""
    for pod in pods:
        if not context.evictor.evict(pod, node.name, reason, allowed, group) and args.drains:
            return
