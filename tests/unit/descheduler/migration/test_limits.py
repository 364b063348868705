"""Limits of migrations at once, and over time: worked examples X14 to X17 of spec/descheduler.md."""

import pytest

from services.descheduler.migration.filter_chain import filter_for_plugins
from services.descheduler.migration.migration_limits import expected_replicas
from services.descheduler.migration.object_limiter import Bucket, Limit, after_eviction, is_exceeded
from services.descheduler.migration.workload_limits import workload_limit
from shared.kube.instants import SECOND
from tests.support.migration import cluster, job_body, migration_args, moved_pod, owner

TABLE = {
    0: (0, 0, 0, 0),
    1: (1, 1, 1, 1),
    2: (1, 1, 1, 2),
    3: (1, 1, 1, 3),
    4: (2, 1, 1, 3),
    10: (2, 1, 3, 3),
    11: (1, 1, 3, 3),
    19: (1, 1, 5, 3),
    20: (2, 2, 6, 3),
    100: (10, 10, 30, 3),
}
WEB = owner("ReplicaSet", "web-rs")


@pytest.mark.parametrize("replicas", TABLE)
def test_x14_the_limit_of_a_workload(replicas: int) -> None:
    assert tuple(workload_limit(replicas, value) for value in (None, "10%", "30%", 3)) == TABLE[replicas]


@pytest.mark.parametrize(
    ("replicas", "limit", "passes"),
    [(1, None, False), (2, None, True), (4, None, True), (3, 3, False), (0, None, False)],
)
def test_x14_a_workload_with_as_few_replicas_as_may_move_keeps_its_pods(
    replicas: int, limit: int | None, passes: bool
) -> None:
    pod = moved_pod("web-0", controller=WEB)
    facts = cluster([pod], deployments={"web": replicas})
    found = expected_replicas(pod, facts.workload(pod), migration_args(maxMigratingPerWorkload=limit))
    assert (not found) == passes
    assert not expected_replicas(pod, facts.workload(pod), migration_args(skipEvictionGates=["ExpectedReplicas"]))


@pytest.mark.parametrize("rules", [{}, {"skipCheckExpectedReplicas": True, "maxUnavailablePerWorkload": 1}])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("ReplicaSet", "its ReplicaSet own is not in the cluster"),
        ("Job", "the replicas of its Job own are not known: workloads of that kind are not read"),
    ],
)
def test_a_pod_whose_workload_is_not_known_stays_with_that_reason(
    rules: dict[str, object], kind: str, reason: str
) -> None:
    pod = moved_pod("own-0", controller=owner(kind, "own"))
    assert filter_for_plugins(cluster([pod]), migration_args(**rules)).reason(pod) == reason


def of_web(*unready: int, replicas: int, jobs: tuple[int, ...] = ()) -> str:
    """The limit of the workload that holds back web-0, by which pods are not ready and which have jobs."""
    pods = [moved_pod(f"web-{n}", controller=WEB, ready=n not in unready, node=f"n{n}") for n in range(replicas)]
    bodies = [job_body(f"job-{n}", f"web-{n}", phase="Running") for n in jobs]
    facts = cluster(pods, jobs=bodies, deployments={"web": replicas})
    return filter_for_plugins(facts, migration_args()).limits.per_workload(pods[0])


def test_x15_unready_and_moving_pods_of_the_workload_count_together() -> None:
    assert not of_web(1, replicas=10)
    assert "2 pods" in of_web(1, replicas=10, jobs=(2,))
    assert not of_web(1, replicas=10, jobs=(1,))
    assert of_web(0, replicas=3) == "1 pod of ReplicaSet web-rs moves or is unavailable, maxUnavailablePerWorkload is 1"
    assert of_web(1, replicas=11)
    assert not of_web(replicas=11)


def test_x16_the_third_pod_of_a_node_waits() -> None:
    pods = [moved_pod(f"web-{n}", controller=WEB) for n in range(5)]
    facts = cluster(pods, jobs=[job_body("a", "web-1"), job_body("b", "web-2")], deployments={"web": 50})
    limits = filter_for_plugins(facts, migration_args()).limits
    assert "maxMigratingPerNode is 2" in limits.per_node(pods[0])
    assert not limits.per_node(pods[1])  # its own job does not count


def after(*evictions_s: int, burst: int) -> tuple[Bucket | None, Limit]:
    limit = Limit(workload_limit(20, None), 300 * SECOND, burst)
    bucket = None
    for at_s in evictions_s:
        assert not is_exceeded(bucket, limit, at_s * SECOND), at_s
        bucket = after_eviction(bucket, limit, at_s * SECOND)
    return bucket, limit


def test_x17_two_evictions_in_five_minutes() -> None:
    bucket, limit = after(0, burst=1)
    assert is_exceeded(bucket, limit, 149 * SECOND)
    assert not is_exceeded(bucket, limit, 150 * SECOND)
    bucket, limit = after(0, 0, 0, burst=3)
    assert is_exceeded(bucket, limit, 149 * SECOND)
    assert not is_exceeded(bucket, limit, 150 * SECOND)


def test_an_object_is_forgotten_one_and_a_half_durations_after_its_last_eviction() -> None:
    bucket, _ = after(0, burst=1)
    assert bucket is not None
    assert not bucket.is_forgotten(450 * SECOND)
    assert bucket.is_forgotten(451 * SECOND)


def test_an_eviction_without_a_token_counts_as_done_and_leaves_nothing_negative() -> None:
    bucket, limit = after(0, burst=1)
    again = after_eviction(bucket, limit, 60 * SECOND)
    assert again is not None
    assert again.parts >= 0
    assert is_exceeded(again, limit, 149 * SECOND)
    assert not is_exceeded(again, limit, 150 * SECOND)


def test_a_limit_of_zero_limits_nothing() -> None:
    assert after_eviction(None, Limit(0, 300 * SECOND), 0) is None
    assert after_eviction(None, Limit(2, 0), 0) is None
