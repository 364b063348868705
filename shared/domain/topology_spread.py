"""A topology spread constraint of a pod, in the form in which pods are counted.

Source: spec/scheduler-core.md 2.6; upstream Kubernetes pkg/scheduler/framework/plugins/podtopologyspread/common.go.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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


def constraint_selector(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector | None:
    """The selector with the pod's own values of `matchLabelKeys`; only these where there is no selector."""
    own = canonical(constraint.label_selector)
    keys: Sequence[Requirement] = [
        Requirement(key=key, operator="In", values=(labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    ]
    return ordered((*keys, *(own or ()))) if keys else own


def spread_constraint(
    constraint: TopologySpreadConstraint, labels: Mapping[str, str], selector: Selector | None
) -> Constraint:
    """Returns a constraint of a pod with these labels.

    Args:
        selector: see `constraint_selector`, or the default of the pod's workload.
    """
    return Constraint(
        max_skew=constraint.max_skew,
        key=constraint.topology_key,
        selector=selector or None,  # an empty one counts no pod either
        matches_self=selector is None or selects(selector, labels),
        min_domains=constraint.min_domains or 1,
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
    )
