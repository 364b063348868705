"""The order of jobs and the rounds of the arbitrator: worked examples X16 and X18 of spec/descheduler.md."""

from services.descheduler.migration.arbitrator import Result, arbitrate, ordered
from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.pod_migration_job import CASE
from shared.kube.pod import Pod
from tests.support.migration import cluster, job_body, migration_args, moved_pod, owner

WEB = owner("ReplicaSet", "web-rs")
BATCH, PROD, FREE = 5500, 9500, 3500


def names(facts: ClusterFacts) -> list[str]:
    waiting = [job for job in facts.jobs.values() if job.status.phase == ""]
    return [job.name for job in ordered(facts, waiting, {})]


def test_x18_cheap_and_new_pods_come_first() -> None:
    pods = [
        moved_pod("a", controller=WEB, priority=BATCH, created_s=0),
        moved_pod("b", controller=WEB, priority=PROD),
        moved_pod("c", controller=WEB, priority=BATCH, created_s=60),
    ]
    jobs = [job_body(f"j{n}", pod, created_s=n) for n, pod in ((1, "a"), (2, "b"), (3, "c"))]
    assert names(cluster(pods, jobs=jobs)) == ["j3", "j1", "j2"]


def test_x18_pods_of_a_batch_job_follow_each_other_and_one_that_moves_already_leads() -> None:
    x = owner("Job", "x")
    pods = [
        moved_pod("a", controller=WEB, priority=BATCH, created_s=0),
        moved_pod("b", controller=x, priority=PROD),
        moved_pod("c", controller=WEB, priority=BATCH, created_s=60),
        moved_pod("d", controller=x, priority=FREE),
        moved_pod("e", controller=x, priority=PROD),
    ]
    jobs = [job_body(f"j{n}", pod, created_s=n) for n, pod in ((1, "a"), (2, "b"), (3, "c"), (4, "d"))]
    assert names(cluster(pods, jobs=jobs)) == ["j4", "j2", "j3", "j1"]
    jobs[0] = job_body("j1", "c")
    jobs[2] = job_body("j3", "a")
    pods[3] = moved_pod("d", controller=x, priority=PROD)
    assert names(cluster(pods, jobs=jobs))[:2] != ["j4", "j2"]
    assert names(cluster(pods, jobs=[*jobs, job_body("j5", "e", phase="Running")]))[:2] == ["j4", "j2"]


def test_a_job_whose_pod_is_gone_comes_first_and_passes() -> None:
    pods = [moved_pod("a", controller=WEB, priority=FREE)]
    facts = cluster(pods, jobs=[job_body("j1", "a"), job_body("j2", "gone")], deployments={"web": 50})
    evaluated = arbitrate(facts, migration_args(), facts.jobs.values(), {})
    assert [(each.job.name, each.result) for each in evaluated] == [("j2", Result.PASSED), ("j1", Result.PASSED)]


def on_one_node(count: int) -> ClusterFacts:
    pods: list[Pod] = [moved_pod(f"web-{n}", controller=WEB) for n in range(count)]
    jobs = [job_body(f"j{n}", f"web-{n}", created_s=n) for n in range(count)]
    return cluster(pods, jobs=jobs, deployments={"web": 50})


def test_x16_one_round_lets_two_of_five_jobs_on_a_node_pass() -> None:
    facts = on_one_node(5)
    results = [each.result for each in arbitrate(facts, migration_args(), facts.jobs.values(), {})]
    assert results == [Result.PASSED] * 2 + [Result.WAITING] * 3


def test_a_mark_that_anyone_can_write_lets_no_job_count_as_passed() -> None:
    facts = on_one_node(3)
    body = job_body("j0", "web-0")
    body["metadata"]["annotations"] = {"descheduler.koordinator.sh/passed-arbitration": "true"}
    facts.put_job("j0", "uid-j0", body)
    waiting = [facts.jobs["j1"], facts.jobs["j2"]]
    assert [each.result for each in arbitrate(facts, migration_args(), waiting, {})] == [Result.PASSED] * 2
    counted = arbitrate(facts, migration_args(), waiting, {"uid-j0": None})
    assert [each.result for each in counted] == [Result.PASSED, Result.WAITING]


def test_a_job_of_a_case_removes_an_ended_pod_whatever_the_limits_of_its_workload() -> None:
    """Three failed pods of a workload of three: as unavailable ones they would keep each other for ever."""
    pods = [moved_pod(f"web-{n}", controller=WEB, phase="Failed", ready=False) for n in range(3)]
    jobs = [job_body(f"j{n}", f"web-{n}") for n in range(3)]
    jobs[0]["metadata"]["annotations"] = jobs[1]["metadata"]["annotations"] = {CASE: "removefailedpods-1"}
    facts = cluster(pods, jobs=jobs, deployments={"web": 3})
    results = {each.job.name: each.result for each in arbitrate(facts, migration_args(), facts.jobs.values(), {})}
    assert results == {"j0": Result.PASSED, "j1": Result.PASSED, "j2": Result.WAITING}


def test_a_pod_that_may_never_move_fails_its_job() -> None:
    pod = moved_pod("agent", controller=owner("DaemonSet", "agents"))
    facts = cluster([pod], jobs=[job_body("j1", "agent")])
    (evaluated,) = arbitrate(facts, migration_args(), facts.jobs.values(), {})
    assert (evaluated.result, evaluated.reason) == (Result.FAILED, "a DaemonSet owns it")
