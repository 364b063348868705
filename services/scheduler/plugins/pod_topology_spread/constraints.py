"""Spread constraints of a pod, or the defaults for a pod without any.

Source: spec/scheduler-core.md 2.6; upstream Kubernetes pkg/scheduler/framework/plugins/podtopologyspread/common.go.
"""

from services.scheduler.cache.cluster_objects import ClusterObjects
from services.scheduler.plugins.pod_topology_spread.args import (
    SpreadArgs,
)
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.label_selectors import Selector, ordered, selects
from shared.domain.topology_spread import Constraint, constraint_selector, spread_constraint
from shared.kube.selectors import Requirement


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
        return tuple(
            spread_constraint(each, pod_class.labels, constraint_selector(each, pod_class.labels)) for each in chosen
        ), True
    chosen = [each for each in args.defaults if each.when_unsatisfiable == action]
    selector = default_selector(pod_class, cluster_objects) if chosen else ()
    if not selector:
        return (), True
    return tuple(spread_constraint(each, pod_class.labels, selector) for each in chosen), not args.are_systems


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
