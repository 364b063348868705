"""Random small clusters in which labels, zones, terms and constraints often meet, and histories of them."""

from collections.abc import Mapping

from hypothesis import strategies as st

from shared.domain.label_selectors import canonical, selects
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeSpec, NodeStatus, Taint
from shared.kube.pod import (
    Affinity,
    Container,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    RequiredNodeTerms,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from shared.kube.selectors import LabelSelector, NodeSelectorTerm, Requirement

HOST = "kubernetes.io/hostname"
APPS, TIERS, NAMESPACES, KEYS = ("a", "b", "c"), ("x", "y"), ("d", "e"), ("zone", "rack", HOST)

labels = st.fixed_dictionaries({}, optional={"app": st.sampled_from(APPS), "tier": st.sampled_from(TIERS)})
requirements = st.one_of(
    st.builds(
        Requirement,
        key=st.sampled_from(("app", "tier")),
        operator=st.sampled_from(("In", "NotIn")),
        values=st.lists(st.sampled_from((*APPS, *TIERS)), min_size=1, max_size=2, unique=True).map(tuple),
    ),
    st.builds(Requirement, key=st.sampled_from(("app", "tier")), operator=st.sampled_from(("Exists", "DoesNotExist"))),
)
selectors = st.one_of(
    st.none(),
    st.just(LabelSelector()),
    st.builds(LabelSelector, match_labels=st.sampled_from([{"app": app} for app in APPS])),
    st.builds(LabelSelector, match_expressions=st.lists(requirements, min_size=1, max_size=2).map(tuple)),
)
terms = st.builds(
    PodAffinityTerm,
    topology_key=st.sampled_from(KEYS),
    label_selector=selectors,
    namespaces=st.sampled_from(((), (), ("d",), ("e",), ("d", "e"))),
    namespace_selector=st.sampled_from(
        (None, None, None, LabelSelector(), LabelSelector(match_labels={"env": "live"}))
    ),
)
weighted = st.builds(WeightedPodAffinityTerm, weight=st.integers(1, 100), pod_affinity_term=terms)
pod_affinities = st.builds(
    PodAffinity, required=st.lists(terms, max_size=2).map(tuple), preferred=st.lists(weighted, max_size=2).map(tuple)
)
node_affinities = st.builds(
    NodeAffinity,
    required=st.just(
        RequiredNodeTerms(
            node_selector_terms=(
                NodeSelectorTerm(match_expressions=(Requirement(key="zone", operator="In", values=("z0", "z1")),)),
            )
        )
    ),
)
affinities = st.none() | st.builds(
    Affinity,
    node_affinity=st.none() | node_affinities,
    pod_affinity=st.none() | pod_affinities,
    pod_anti_affinity=st.none() | pod_affinities,
)
constraints = st.builds(
    TopologySpreadConstraint,
    max_skew=st.integers(1, 3),
    topology_key=st.sampled_from(KEYS),
    when_unsatisfiable=st.sampled_from(("DoNotSchedule", "ScheduleAnyway")),
    label_selector=selectors,
    min_domains=st.sampled_from((None, None, 2, 4)),
    node_affinity_policy=st.sampled_from((None, "Honor", "Ignore")),
    node_taints_policy=st.sampled_from((None, "Honor", "Ignore")),
    match_label_keys=st.sampled_from(((), (), ("tier",))),
)


@st.composite
def pods(draw: st.DrawFn, name: str, on: str = "", *, ending: bool = False) -> Pod:
    return Pod(
        metadata=Metadata(
            name=name,
            namespace=draw(st.sampled_from(NAMESPACES)),
            uid=name,
            labels=draw(labels) or None,
            deletion_timestamp="2026-01-01T00:00:00Z" if ending else None,
        ),
        spec=PodSpec(
            node_name=on,
            scheduler_name="koord-scheduler",
            affinity=draw(affinities),
            topology_spread_constraints=draw(st.lists(constraints, max_size=2).map(tuple)),
            containers=(Container(name="c"),),
        ),
        status=PodStatus(phase="Running" if on else "Pending"),
    )


@st.composite
def nodes(draw: st.DrawFn, number: int) -> Node:
    name = f"n{number}"
    annotated = {HOST: name}
    annotated |= draw(
        st.fixed_dictionaries(
            {},
            optional={"zone": st.sampled_from(("z0", "z1", "z2")), "rack": st.sampled_from(("r0", "r1", "r2", "r3"))},
        )
    )
    taints = (Taint(key="t", effect="NoSchedule"),) if draw(st.integers(0, 4)) == 0 else ()
    return Node(
        metadata=Metadata(name=name, uid=name, labels=annotated),
        spec=NodeSpec(taints=taints),
        status=NodeStatus(allocatable={"cpu": "8", "memory": "8Gi", "pods": "110"}),
    )


def means(selector: LabelSelector | None, pod_labels: Mapping[str, str] | None) -> bool:
    """A selector against labels, None selecting nothing."""
    read = canonical(selector)
    return read is not None and selects(read, pod_labels)
