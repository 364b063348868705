"""Spread constraints of a pod, or the defaults for a pod without any.

Source: spec/scheduler-core.md 2.6; upstream Kubernetes pkg/scheduler/framework/plugins/podtopologyspread/common.go.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.scheduler.cache.cluster_objects import ClusterObjects
from services.scheduler.plugins.pod_topology_spread.args import (
    SpreadArgs,
)
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.label_selectors import Selector, canonical, ordered, selects
from shared.kube.pod import TopologySpreadConstraint
from shared.kube.selectors import Requirement


class Constraint(NamedTuple):
    """One constraint on a class of pods.

    Attributes:
        selector: of the pods of the namespace that count; None: none does.
        matches_self: a pod of the class is among them.
        honors_affinity, honors_taints: nodes that the pod's node affinity, or its tolerations, exclude do not count.
    """

    max_skew: int
    key: str
    selector: Selector | None
    matches_self: bool
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


def may_be_spread(pod_class: PodClass, cluster_objects: ClusterObjects) -> bool:
    """Returns True for a class that can have constraints: its own, or the defaults for pods that a workload selects."""
    pod = pod_class.pod
    return bool(
        pod.spec.topology_spread_constraints
        or pod.metadata.owner_references
        or cluster_objects.services.get(pod_class.namespace)
    )


def constraints_of(
    pod_class: PodClass, action: str, args: SpreadArgs, cluster_objects: ClusterObjects
) -> tuple[tuple[Constraint, ...], bool]:
    """The constraints of a class with one action, in order; and True where only nodes with all of their keys take part."""
    own = pod_class.pod.spec.topology_spread_constraints
    if own:
        chosen = [each for each in own if each.when_unsatisfiable == action]
        return tuple(_read(each, pod_class, _selector(each, pod_class.labels)) for each in chosen), True
    chosen = [each for each in args.defaults if each.when_unsatisfiable == action]
    selector = default_selector(pod_class, cluster_objects) if chosen else ()
    if not selector:
        return (), True
    return tuple(_read(each, pod_class, selector) for each in chosen), not args.are_systems


def default_selector(pod_class: PodClass, cluster_objects: ClusterObjects) -> Selector:
    """The selectors of the pod's services and of the workload that controls it; empty without any."""
    labels: dict[str, str] = {}
    for selector in cluster_objects.services.get(pod_class.namespace, {}).values():
        if selects(selector, pod_class.labels):
            labels.update({requirement.key: requirement.values[0] for requirement in selector})
    requirements = [Requirement(key=key, operator="In", values=(value,)) for key, value in labels.items()]
    for owner in pod_class.pod.metadata.owner_references:
        if owner.controller:
            requirements += cluster_objects.owners.get((owner.kind, f"{pod_class.namespace}/{owner.name}"), ())
    return ordered(requirements)


def _selector(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector | None:
    """The selector with the pod's own values of `matchLabelKeys`; only these where there is no selector."""
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
        selector=selector or None,  # an empty one counts no pod either
        matches_self=selector is None or selects(selector, pod_class.labels),
        min_domains=constraint.min_domains or 1,
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
    )
