"""Pods measured against their quota at admission. Source of the cases: spec/quota.md 5.5."""

from typing import Any

import pytest

from shared.admission.quota.quota_evaluation import again, evaluate, evaluated_by
from shared.kube.elastic_quota import DEFAULT, PREFIX, QUOTA_NAME, DeclaredQuota
from shared.kube.instants import SECOND, instant_ns
from tests.support.pods import written_pod

ON = frozenset({"EnableQuotaAdmission"})
BOTH = ON | {"EnableQuotaAdmissionOnUpdate"}
QUOTAS = {"a": DeclaredQuota(name="a"), "b": DeclaredQuota(name="b")}


def quota(limit: dict[str, str] | None = None, **annotations: str) -> dict[str, Any]:
    metadata = {
        "name": "a",
        "namespace": "quotas",
        "annotations": {PREFIX + k.replace("_", "-"): v for k, v in annotations.items()},
    }
    return {"metadata": metadata, "spec": {"max": limit or {"cpu": "10", "memory": "20Gi"}}}


def pod(name: str = "p", cpu: str = "4", phase: str = "Pending", **metadata: Any) -> dict[str, Any]:
    labels = {QUOTA_NAME: "a"}
    written = written_pod(name, namespace="ns", labels=labels, requests={"cpu": cpu}, metadata=metadata)
    return {**written, "status": {"phase": phase}}


def test_the_second_of_three_pods_is_rejected_and_one_sum_is_written() -> None:
    found = evaluate(quota(), [pod("p1"), pod("p2", "7"), pod("p3")], 0)
    assert [rejections and rejections.code for rejections in found.rejections] == [None, "quotaExceeded", None]
    assert found.child_request == {"cpu": 8000}
    assert str(found.rejections[1]) == (
        "pod ns/p2 requests cpu 7 of quota quotas/a, of which cpu 4 is requested already and cpu 10 may be; "
        "ask for less, or have the quota raised"
    )


def test_after_a_conflict_the_batch_is_accepted_at_once_if_it_still_fits() -> None:
    added = evaluate(quota(), [pod("p1"), pod("p3", "2")], 0).added
    assert again(quota(child_request='{"cpu": "4"}'), added) == {"cpu": 10_000}
    assert again(quota(child_request='{"cpu": "5"}'), added) is None


def test_the_annotation_admission_is_the_limit_where_there_is_one() -> None:
    assert evaluate(quota(admission='{"cpu": "3"}'), [pod()], 0).rejections[0] is not None
    assert evaluate(quota(admission='{"memory": "1Gi"}'), [pod(cpu="99")], 0).rejections == [None]


def test_only_requested_resources_are_compared() -> None:
    full = quota(child_request='{"cpu": "1", "memory": "30Gi"}')
    assert evaluate(full, [pod()], 0).rejections == [None]


def test_an_unreadable_annotation_rejects_pods() -> None:
    [rejections] = evaluate(quota(child_request="lots"), [pod()], 0).rejections
    assert rejections is not None
    assert rejections.code == "quotaUnreadable"
    assert "child-request" in str(rejections)


@pytest.mark.parametrize(
    "passes",
    [
        (quota({"example.com/chip": "1"}), pod(cpu="99")),
        (quota(), pod(cpu="99", phase="Succeeded")),
        (quota(), pod(cpu="99", deletionTimestamp="1970-01-01T00:00:00Z", deletionGracePeriodSeconds=5)),
        (quota(), pod(cpu="0")),
    ],
    ids=["counts nothing known", "has ended", "should have ended", "requests nothing"],
)
def test_uncounted_pods_are_admitted_and_nothing_is_written(passes: tuple[dict[str, Any], dict[str, Any]]) -> None:
    raw, one = passes
    found = evaluate(raw, [one], instant_ns("1970-01-01T00:00:05Z") + 1)
    assert (found.rejections, found.child_request) == ([None], None)


def test_a_pod_counts_until_its_grace_is_over() -> None:
    leaving = pod(cpu="99", deletionTimestamp="1970-01-01T00:00:00Z", deletionGracePeriodSeconds=5)
    assert evaluate(quota(), [leaving], 5 * SECOND).rejections[0] is not None


def test_pods_that_are_evaluated() -> None:
    moved = pod(labels={QUOTA_NAME: "b"})
    assert evaluated_by(pod(), None, "ns", QUOTAS, frozenset()) == ""
    assert evaluated_by(pod(), None, "ns", QUOTAS, ON) == "a"
    assert evaluated_by(pod(labels={QUOTA_NAME: DEFAULT}), None, "ns", QUOTAS, ON) == ""
    assert evaluated_by(moved, pod(), "ns", QUOTAS, ON) == ""
    assert evaluated_by(moved, pod(), "ns", QUOTAS, BOTH) == "b"
    assert evaluated_by(pod(), pod(), "ns", QUOTAS, BOTH) == ""
