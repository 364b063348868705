"""Profiles: which select a pod, and what they make of it. Source: spec/api.md 5.3."""

from typing import Any

import pytest

from shared.admission.pod.colocation_profile import applied, matching
from shared.admission.rejection import AdmissionRejected
from tests.unit.admission.objects import CLASSES, NAMESPACES, container, pod, profile

BATCH: dict[str, Any] = {"qosClass": "BE", "priorityClassName": "koord-batch"}


def after(*profiles: dict[str, Any], to: dict[str, Any], drawn: int = 0, **how: bool) -> dict[str, Any]:
    return applied(to, profiles, CLASSES, lambda _name: drawn, **how)


def names(*profiles: dict[str, Any], of: dict[str, Any]) -> list[str]:
    chosen = matching(of, of["metadata"]["namespace"], profiles, NAMESPACES)
    return [each["metadata"]["name"] for each in chosen]


def test_both_selectors_must_match_and_an_absent_or_empty_one_matches_everything() -> None:
    profiles = [
        profile("z-all"),
        profile("empty", namespaceSelector={}, selector={}),
        profile("prod", namespaceSelector={"matchLabels": {"env": "prod"}}),
        profile("web", selector={"matchLabels": {"app": "web"}}),
        profile("db", selector={"matchLabels": {"app": "db"}}),
    ]
    assert names(*profiles, of=pod(labels={"app": "web"})) == ["empty", "prod", "web", "z-all"]
    assert names(*profiles, of=pod(namespace="bare")) == ["empty", "z-all"]


@pytest.mark.parametrize(
    "broken",
    [
        {"matchExpressions": [{"key": "env", "operator": "Like", "values": ["p"]}]},
        {"matchExpressions": [{"key": "env", "operator": "In"}]},
        {"matchExpressions": [{"key": "env", "operator": "Exists", "values": ["p"]}]},
        {"matchLabels": {"env": "not a value"}},
        {"matchLabels": {"-env": "prod"}},
    ],
)
def test_a_selector_that_cannot_be_read_matches_by_itself_and_the_other_one_decides(broken: dict[str, Any]) -> None:
    other_namespace = {"matchLabels": {"app": "db"}}
    assert names(profile("p", namespaceSelector=broken), of=pod()) == ["p"]
    assert names(profile("p", namespaceSelector=broken, selector=other_namespace), of=pod()) == []


def test_an_unknown_namespace_counts_as_matched() -> None:
    assert names(profile("p", namespaceSelector={"matchLabels": {"env": "prod"}}), of=pod(namespace="new")) == ["p"]


def test_a_later_profile_takes_precedence_and_keys_are_copied_and_extended() -> None:
    first = profile(
        "a", labels={"tier": "one", "keep": "k"}, annotations={"note": "a"}, schedulerName="koord-scheduler"
    )
    second = profile(
        "b",
        labels={"tier": "two"},
        labelKeysMapping={"tier": "copy", "absent": "none"},
        annotationKeysMapping={"note": "copied"},
        labelSuffixes={"tier": "-x", "absent": "-x"},
        koordinatorPriority=-5,
    )
    found = after(first, second, to=pod())
    assert found["metadata"]["labels"] == {
        "tier": "two-x", "keep": "k", "copy": "two", "none": "", "koordinator.sh/priority": "-5",
    }  # fmt: skip
    assert found["metadata"]["annotations"] == {"note": "a", "copied": "a"}
    assert found["spec"]["schedulerName"] == "koord-scheduler"


def test_a_priority_class_sets_name_value_and_policy() -> None:
    before = pod(preemptionPolicy="Never")
    assert after(profile("p", priorityClassName="koord-prod"), to=before)["spec"] | {"containers": []} == {
        "containers": [], "priorityClassName": "koord-prod", "priority": 9000, "preemptionPolicy": "PreemptLowerPriority",
    }  # fmt: skip
    assert "preemptionPolicy" not in after(profile("p", priorityClassName="koord-batch"), to=before)["spec"]
    with pytest.raises(AdmissionRejected, match=r"profile p: there is no PriorityClass gone"):
        after(profile("p", priorityClassName="gone"), to=before)


def test_batch_pods_request_batch_resources_in_all_containers_and_the_overhead() -> None:
    before = pod(
        container({"cpu": "1500m", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "1Gi"}),
        container(None, {"cpu": "500m"}, name="limited"),
        overhead={"cpu": "50m", "memory": "64Mi"},
        initContainers=[container({"cpu": "100m"}, name="init")],
    )
    found = after(profile("p", **BATCH), to=before)["spec"]
    cpu, memory = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
    assert [each["resources"] for each in found["containers"]] == [
        {"requests": {cpu: "1500", memory: "1Gi"}, "limits": {cpu: "2000", memory: "2Gi", "ephemeral-storage": "1Gi"}},
        {"requests": {cpu: "500"}, "limits": {cpu: "500"}},
    ]
    assert found["initContainers"][0]["resources"] == {"requests": {cpu: "100"}}
    assert found["overhead"] == {cpu: "50", memory: "64Mi"}
    assert before["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi"}


@pytest.mark.parametrize(
    "labels", [{}, {"koordinator.sh/priority-class": "koord-free"}, {"koordinator.sh/qosClass": "LS"}]
)
def test_pods_of_other_classes_keep_their_resources(labels: dict[str, str]) -> None:
    before = pod(container({"cpu": "1"}), labels=labels)
    assert after(profile("p"), to=before)["spec"] == before["spec"]


def test_the_skip_annotation_holds_even_where_its_profile_is_left_out_by_probability() -> None:
    skipping = profile("a", {"config.koordinator.sh/skip-update-resources": ""}, probability=0, labels={"a": "1"})
    found = after(skipping, profile("b", **BATCH), to=pod(container({"cpu": "1"})))
    assert found["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    assert "a" not in found["metadata"]["labels"]
    assert after(profile("b", **BATCH), to=pod(container({"cpu": "1"})), translates=False)["spec"]["containers"] == [
        container({"cpu": "1"})
    ]


@pytest.mark.parametrize(
    ("probability", "drawn", "applies"),
    [(None, 99, True), (100, 99, True), ("100%", 99, True), (0, 0, False), ("30%", 29, True), ("30%", 30, False), (30, 99, False)],
)  # fmt: skip
def test_a_profile_of_some_probability_applies_to_that_share_of_draws(
    probability: int | str | None, drawn: int, *, applies: bool
) -> None:
    found = after(profile("p", labels={"hit": "1"}, probability=probability), to=pod(), drawn=drawn)
    assert ("hit" in found["metadata"]["labels"]) == applies


@pytest.mark.parametrize("probability", ["often", "30", "", True])
def test_an_invalid_probability_is_rejected(probability: Any) -> None:
    with pytest.raises(AdmissionRejected, match="give a number"):
        after(profile("p", probability=probability), to=pod())


def test_a_patch_overrides_all_else_and_must_result_in_a_pod() -> None:
    patch = {
        "metadata": {"labels": {"tier": None}},
        "spec": {"schedulerName": "mine", "containers": [{"name": "main", "env": [{"name": "A", "value": "b"}]}]},
    }
    found = after(
        profile("p", labels={"tier": "x"}, schedulerName="theirs", patch=patch), to=pod(container({"cpu": "1"}))
    )
    assert "tier" not in found["metadata"]["labels"]
    assert found["spec"]["schedulerName"] == "mine"
    assert found["spec"]["containers"] == [{**container({"cpu": "1"}), "env": [{"name": "A", "value": "b"}]}]
    for wrong in ({"spec": {"priority": "x"}}, {"spec": {"containers": [{"image": "i"}]}}, ["x"]):
        with pytest.raises(AdmissionRejected, match="profile p: its patch"):
            after(profile("p", patch=wrong), to=pod())
