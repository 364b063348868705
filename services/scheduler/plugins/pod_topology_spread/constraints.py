"""Spread constraints as they are read from a pod, or from the defaults for a pod without any.

Source: spec/scheduler-core.md 2.6; upstream Kubernetes pkg/scheduler/framework/plugins/podtopologyspread/common.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from services.scheduler.cache.cluster_objects import ClusterObjects
from services.scheduler.cache.selectors import Selector, canonical, ordered, selects
from services.scheduler.state.pod_class import PodClass
from shared.errors import KoordError
from shared.kube.pod import TopologySpreadConstraint
from shared.kube.selectors import Requirement

HOSTNAME = "kubernetes.io/hostname"
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


class Constraint(NamedTuple):
    """One constraint on a class of pods.

    Attributes:
        selector: which pods of the namespace count; None: none do.
        matches_self: whether a pod of the class is among them.
        honors_affinity, honors_taints: whether nodes count that the pod's node affinity, or its tolerations, rule out.
    """

    max_skew: int
    key: str
    selector: Selector | None
    matches_self: bool
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class SpreadArgs(NamedTuple):
    """Constraints for pods that have none, and whether they are the system's own."""

    defaults: tuple[TopologySpreadConstraint, ...]
    are_systems: bool


SYSTEM_DEFAULTS = SpreadArgs(
    (
        TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
        TopologySpreadConstraint(max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SOFT),
    ),
    are_systems=True,
)


class BadSpreadArgs(KoordError):
    """PodTopologySpreadArgs that cannot be used; names the path, what was found there and what is allowed."""


class _Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = "System"


def read_spread_args(raw: Mapping[str, Any], source: str = "PodTopologySpreadArgs") -> SpreadArgs:
    """Decode and check PodTopologySpreadArgs.

    Raises:
        BadSpreadArgs: a field is unknown, of the wrong type, or out of range.
    """
    stated = {name: value for name, value in raw.items() if name not in ("apiVersion", "kind") and value is not None}
    try:
        args = msgspec.convert(stated, _Args)
    except msgspec.ValidationError as error:
        raise BadSpreadArgs(f"{source}: {error}") from error
    if args.defaulting_type not in ("System", "List"):
        raise BadSpreadArgs(f"{source}: defaultingType is {args.defaulting_type!r}; give System or List")
    if args.defaulting_type == "System":
        if args.default_constraints:
            raise BadSpreadArgs(f"{source}: defaultConstraints are given; they hold only with defaultingType List")
        return SYSTEM_DEFAULTS
    seen: set[tuple[str, str]] = set()
    for number, constraint in enumerate(args.default_constraints):
        path = f"{source}: defaultConstraints[{number}]"
        which = (constraint.topology_key, constraint.when_unsatisfiable)
        if constraint.max_skew <= 0:
            raise BadSpreadArgs(f"{path}.maxSkew is {constraint.max_skew}; give a whole number above 0")
        if not constraint.topology_key:
            raise BadSpreadArgs(f"{path}.topologyKey is empty; give a label of the nodes")
        if constraint.when_unsatisfiable not in (HARD, SOFT):
            raise BadSpreadArgs(f"{path}.whenUnsatisfiable is {constraint.when_unsatisfiable!r}; give {HARD} or {SOFT}")
        if constraint.label_selector is not None:
            raise BadSpreadArgs(f"{path}.labelSelector is given; the pods' services and workloads select by default")
        if which in seen:
            raise BadSpreadArgs(f"{path} repeats {which[0]} with {which[1]}; give each pair once")
        seen.add(which)
    return SpreadArgs(args.default_constraints, are_systems=False)


def is_spread(pod_class: PodClass, around: ClusterObjects) -> bool:
    """Whether the class can have constraints: of its own, or the defaults for pods that something selects."""
    pod = pod_class.pod
    return bool(
        pod.spec.topology_spread_constraints
        or pod.metadata.owner_references
        or around.services.get(pod_class.namespace)
    )


def constraints_of(
    pod_class: PodClass, action: str, args: SpreadArgs, around: ClusterObjects
) -> tuple[tuple[Constraint, ...], bool]:
    """A class's constraints with one action, in order; and whether nodes must have all their keys to take part."""
    own = pod_class.pod.spec.topology_spread_constraints
    if own:
        chosen = [each for each in own if each.when_unsatisfiable == action]
        return tuple(_read(each, pod_class, _selector(each, pod_class.labels)) for each in chosen), True
    chosen = [each for each in args.defaults if each.when_unsatisfiable == action]
    selector = default_selector(pod_class, around) if chosen else ()
    if not selector:
        return (), True
    return tuple(_read(each, pod_class, selector) for each in chosen), not args.are_systems


def default_selector(pod_class: PodClass, around: ClusterObjects) -> Selector:
    """What selects the pod: its services, and the workload that controls it; empty when nothing does."""
    labels: dict[str, str] = {}
    for selector in around.services.get(pod_class.namespace, {}).values():
        if selects(selector, pod_class.labels):
            labels.update({requirement.key: requirement.values[0] for requirement in selector})
    requirements = [Requirement(key=key, operator="In", values=(value,)) for key, value in labels.items()]
    for owner in pod_class.pod.metadata.owner_references:
        if owner.controller:
            requirements += around.owners.get((owner.kind, f"{pod_class.namespace}/{owner.name}"), ())
    return ordered(requirements)


def _selector(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector | None:
    """The selector with the pod's own values of `matchLabelKeys`, which alone remain of an absent one."""
    own = canonical(constraint.label_selector)
    keys: Sequence[Requirement] = [
        Requirement(key=key, operator="In", values=(labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    ]
    return ordered((*keys, *(own or ()))) if keys else own


def _read(constraint: TopologySpreadConstraint, pod_class: PodClass, selector: Selector | None) -> Constraint:
    return Constraint(
        max_skew=constraint.max_skew,
        key=constraint.topology_key,
        selector=selector or None,  # an empty one counts nobody either
        matches_self=selector is None or selects(selector, pod_class.labels),
        min_domains=constraint.min_domains or 1,
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
    )
