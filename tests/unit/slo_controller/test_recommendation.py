"""Recommended requests of containers, by the usage of their pods."""

from typing import Any

from services.slo_controller.recommendation import (
    LOW_CONFIDENCE,
    NO_OBJECTS,
    UNSUPPORTED,
    Recommender,
    usage_by_container,
)
from services.slo_controller.state.pod_template import ContainerTemplate, PodTemplate, pod_template
from shared.domain.cpu_memory import Amount
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.intents import FieldsDesired
from shared.events.slo import RecommendationEnded, RecommendationUpdated
from shared.kube.instants import SECOND
from shared.kube.meta import OwnerReference
from shared.kube.pod import Container, Pod, ResourceRequirements
from shared.kube.quantity import NANO, nanos
from shared.kube.resource_names import RECOMMENDATIONS
from tests.support.pods import kept_pod, observed
from tests.support.slo_cluster import BEGAN, Cluster

G = 10**9
DAY = 24 * 3600
DEPLOYMENT = {"type": "workload", "workload": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}}


def pod(name: str, *containers: tuple[str, str, str]) -> Pod:
    owner = OwnerReference(kind="ReplicaSet", name="web-7c9f", controller=True)
    labels = {"app": "web", "pod-template-hash": "7c9f", "koordinator.sh/priority-class": "koord-prod"}
    made = tuple(
        Container(name=each, resources=ResourceRequirements(requests={"cpu": cpu, "memory": memory}))
        for each, cpu, memory in containers
    )
    return kept_pod(
        name, uid=f"uid-{name}", labels=labels, owners=(owner,), phase="Running", node_name="n", containers=made
    )


class RecommendationCluster(Cluster):
    """A cluster with a Recommendation, and its recommender."""

    def __init__(self, target: dict[str, Any]) -> None:
        super().__init__()
        self.recommender = Recommender()
        self.recommend_for(target)
        self.node()
        shown = pod("web-1", ("main", "3", "3G"), ("side", "1", "1G"))
        self.append("cluster", observed(shown))

    def recommend_for(self, target: dict[str, Any]) -> None:
        body = {"metadata": {"name": "r", "namespace": "d"}, "spec": {"target": target}}
        self.append("cluster", ObjectObserved(resource=RECOMMENDATIONS, name="d/r", uid="r", object=body))

    def update(self, at_s: float) -> list[Any]:
        drafted = [draft.event for draft in self.recommender.update(self.state, BEGAN + int(at_s * SECOND))]
        for event in drafted:
            self.append("slo", event, at_s)
        return drafted


def test_the_owner_of_a_deployments_pod_is_the_deployment() -> None:
    assert pod_template(pod("web-1", ("main", "1", "1G"))).owner == ("Deployment", "web")


def test_usage_is_divided_in_proportion_to_requests() -> None:
    template = PodTemplate(containers=(ContainerTemplate("a", 3 * NANO, 0), ContainerTemplate("b", NANO, 0)))
    assert usage_by_container(template, Amount(2 * NANO, 8 * NANO)) == [("a", 1.5, 4.0), ("b", 0.5, 4.0)]


def test_usage_is_recommended_with_a_margin_and_low_confidence_at_first() -> None:
    on = RecommendationCluster(DEPLOYMENT)
    on.report(30, {"web-1": (2_000, 2 * G)})
    made, written = on.update(60)
    assert isinstance(made, RecommendationUpdated)
    assert isinstance(written, FieldsDesired)
    assert made.conditions == (LOW_CONFIDENCE,)
    # A bucket is 5 % wide; its end is recommended, and a tenth on top.
    assert 1_500 * 1.1 <= nanos(made.containers["main"]["cpu"]) / 10**6 <= 1_500 * 1.1 * 1.05
    assert 0.5 * G * 1.1 <= nanos(made.containers["side"]["memory"]) / NANO <= 0.5 * G * 1.1 * 1.05
    assert written.patch["status"]["podStatus"]["containerStatuses"][0]["containerName"] == "main"
    assert on.update(120) == []


def test_confidence_is_full_after_a_day() -> None:
    on = RecommendationCluster(DEPLOYMENT)
    on.report(30, {"web-1": (2_000, 2 * G)})
    on.update(60)
    on.report(DAY + 30, {"web-1": (2_000, 2 * G)})
    made, _ = on.update(DAY + 60)
    assert made.conditions == ()


def test_a_selector_selects_pods_and_no_match_is_a_condition() -> None:
    on = RecommendationCluster({"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}})
    on.report(30, {"web-1": (2_000, 2 * G)})
    assert list(on.update(60)[0].containers) == ["main", "side"]
    on.recommend_for({"type": "podSelector", "podSelector": {"matchLabels": {"app": "other"}}})
    assert NO_OBJECTS in on.update(120)[0].conditions
    on.recommend_for({"type": "workload", "workload": {"kind": "Teapot", "name": "web"}})
    assert on.update(180)[0].conditions == (UNSUPPORTED,)


def test_histograms_are_kept_by_the_next_writer() -> None:
    on = RecommendationCluster(DEPLOYMENT)
    on.report(30, {"web-1": (2_000, 2 * G)})
    made = on.update(60)[0]
    on.recommender = Recommender()
    assert on.update(120) == []
    on.report(700, {"web-1": (2_000, 2 * G)})
    (kept,) = on.update(720)
    assert kept.containers == made.containers
    assert kept.since_ns == made.since_ns


def test_a_deleted_recommendation_ends() -> None:
    on = RecommendationCluster(DEPLOYMENT)
    on.update(60)
    on.append("cluster", ObjectDeleted(resource=RECOMMENDATIONS, name="d/r", uid="r"))
    assert on.update(120) == [RecommendationEnded(name="d/r")]
    assert on.update(180) == []
