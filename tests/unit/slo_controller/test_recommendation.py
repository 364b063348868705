"""What containers should ask for, from what their pods used."""

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


class Asked(Cluster):
    """A cluster with a Recommendation, and what is said of it."""

    def __init__(self, target: dict[str, Any]) -> None:
        super().__init__()
        self.recommender = Recommender()
        self.ask(target)
        self.node()
        shown = pod("web-1", ("main", "3", "3G"), ("side", "1", "1G"))
        self.say("cluster", observed(shown))

    def ask(self, target: dict[str, Any]) -> None:
        body = {"metadata": {"name": "r", "namespace": "d"}, "spec": {"target": target}}
        self.say("cluster", ObjectObserved(resource=RECOMMENDATIONS, name="d/r", uid="r", object=body))

    def update(self, at_s: float) -> list[Any]:
        said = [draft.event for draft in self.recommender.update(self.state, BEGAN + int(at_s * SECOND))]
        for event in said:
            self.say("slo", event, at_s)
        return said


def test_a_replica_set_of_a_deployment_stands_for_it() -> None:
    assert pod_template(pod("web-1", ("main", "1", "1G"))).owner == ("Deployment", "web")


def test_use_is_divided_as_requests_are() -> None:
    shape = PodTemplate(containers=(ContainerTemplate("a", 3 * NANO, 0), ContainerTemplate("b", NANO, 0)))
    assert usage_by_container(shape, Amount(2 * NANO, 8 * NANO)) == [("a", 1.5, 4.0), ("b", 0.5, 4.0)]


def test_what_was_used_is_recommended_with_a_margin_and_low_confidence_at_first() -> None:
    on = Asked(DEPLOYMENT)
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


def test_confidence_comes_after_a_day() -> None:
    on = Asked(DEPLOYMENT)
    on.report(30, {"web-1": (2_000, 2 * G)})
    on.update(60)
    on.report(DAY + 30, {"web-1": (2_000, 2 * G)})
    made, _ = on.update(DAY + 60)
    assert made.conditions == ()


def test_a_selector_selects_pods_and_nothing_matched_is_said() -> None:
    on = Asked({"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}})
    on.report(30, {"web-1": (2_000, 2 * G)})
    assert list(on.update(60)[0].containers) == ["main", "side"]
    on.ask({"type": "podSelector", "podSelector": {"matchLabels": {"app": "other"}}})
    assert NO_OBJECTS in on.update(120)[0].conditions
    on.ask({"type": "workload", "workload": {"kind": "Teapot", "name": "web"}})
    assert on.update(180)[0].conditions == (UNSUPPORTED,)


def test_what_was_learned_outlasts_its_writer() -> None:
    on = Asked(DEPLOYMENT)
    on.report(30, {"web-1": (2_000, 2 * G)})
    made = on.update(60)[0]
    on.recommender = Recommender()
    assert on.update(120) == []
    on.report(700, {"web-1": (2_000, 2 * G)})
    (kept,) = on.update(720)
    assert kept.containers == made.containers
    assert kept.since_ns == made.since_ns


def test_a_recommendation_that_is_gone_is_forgotten() -> None:
    on = Asked(DEPLOYMENT)
    on.update(60)
    on.say("cluster", ObjectDeleted(resource=RECOMMENDATIONS, name="d/r", uid="r"))
    assert on.update(120) == [RecommendationEnded(name="d/r")]
    assert on.update(180) == []
