"""Plugins that choose pods by age and status: PodLifeTime, RemoveFailedPods, RemovePodsHavingTooManyRestarts.

Source: spec/descheduler.md 1.8.
"""

from typing import Any

import pytest

from services.descheduler.configuration.read_configuration import read_configuration
from services.descheduler.migration.pod_migration_job import EVICT_DIRECTLY, RESERVATION_FIRST
from shared.domain.component_config import BadConfig
from shared.events.intents import ObjectDesired
from shared.kube.pod import ContainerState, PodCondition
from tests.unit.descheduler.small_cluster import SmallCluster
from tests.unit.descheduler.test_sigs_plugins import config, victims

LOOPING = ContainerState(name="c", restart_count=5, waiting="CrashLoopBackOff")
KILLED = ContainerState(name="c", terminated="OOMKilled", exit_code=137)


def two_nodes(plugin: str, args: str) -> SmallCluster:
    cluster = SmallCluster(config("deschedule", plugin, args))
    for name in ("a", "b"):
        cluster.node(name)
    return cluster


def test_pods_older_than_the_longest_life_leave_the_oldest_first() -> None:
    cluster = two_nodes("PodLifeTime", "{maxPodLifeTimeSeconds: 100}")
    cluster.pod("exactly", "a", creation_timestamp=cluster.ago(100))
    cluster.pod("old", "a", creation_timestamp=cluster.ago(101))
    cluster.pod("oldest", "b", creation_timestamp=cluster.ago(500))
    cluster.pod("future", "a", creation_timestamp=cluster.ago(-500))
    cluster.pod("unknown", "a")
    assert victims(cluster) == ["oldest", "old"]


@pytest.mark.parametrize(
    ("args", "status", "expected"),
    [
        ("{states: [Pending]}", {"phase": "Pending"}, True),
        ("{states: [Pending]}", {}, False),
        ("{states: [NodeLost]}", {"reason": "NodeLost"}, True),
        ("{states: [CrashLoopBackOff]}", {"container_states": (LOOPING,)}, True),
        ("{states: [ImagePullBackOff, OOMKilled]}", {"container_states": (KILLED,)}, True),
        ("{states: [OOMKilled], exitCodes: [1]}", {"container_states": (KILLED,)}, False),
        ("{states: [OOMKilled], exitCodes: [1, 137]}", {"container_states": (KILLED,)}, True),
        ("{exitCodes: [0]}", {"container_states": (LOOPING,)}, False),
        ("{states: [OOMKilled]}", {"container_states": (ContainerState(kind="init", terminated="OOMKilled"),)}, False),
        (
            "{states: [OOMKilled], includingInitContainers: true}",
            {"container_states": (ContainerState(kind="init", terminated="OOMKilled"),)},
            True,
        ),
        (
            "{states: [OOMKilled], includingInitContainers: true}",
            {"container_states": (ContainerState(kind="ephemeral", terminated="OOMKilled"),)},
            False,
        ),
        (
            "{states: [OOMKilled], includingEphemeralContainers: true}",
            {"container_states": (ContainerState(kind="ephemeral", terminated="OOMKilled"),)},
            True,
        ),
        ("{states: [Running], ownerKinds: {include: [Job]}}", {}, False),
        ("{states: [Running], ownerKinds: {include: [ReplicaSet]}}", {}, True),
        ("{states: [Running], ownerKinds: {exclude: [ReplicaSet]}}", {}, False),
        ("{states: [Running], maxPodLifeTimeSeconds: 100}", {}, False),
    ],
)
def test_a_pod_leaves_that_meets_every_criterion(args: str, status: dict[str, Any], expected: bool) -> None:
    cluster = two_nodes("PodLifeTime", args)
    cluster.pod("p", "a", status=status)
    assert victims(cluster) == (["p"] if expected else [])


@pytest.mark.parametrize(
    ("condition", "leaves"),
    [
        ("{type: Ready, status: 'False'}", True),
        ("{type: Ready, status: 'True'}", False),
        ("{reason: ContainersNotReady}", True),
        ("{type: Ready, minTimeSinceLastTransitionSeconds: 60}", True),
        ("{type: Ready, minTimeSinceLastTransitionSeconds: 61}", False),
        ("{type: Initialized, minTimeSinceLastTransitionSeconds: 0}", False),
    ],
)
def test_a_pod_leaves_that_is_in_a_condition_for_long(condition: str, leaves: bool) -> None:
    cluster = two_nodes("PodLifeTime", f"{{conditions: [{condition}]}}")
    ready = PodCondition(
        type="Ready", status="False", reason="ContainersNotReady", last_transition_time=cluster.ago(60)
    )
    cluster.pod("p", "a", status={"conditions": (ready, PodCondition(type="Initialized", status="True"))})
    assert victims(cluster) == (["p"] if leaves else [])


def test_a_pod_that_has_ended_is_removed_without_a_destination() -> None:
    """Its place is free already, and its workload has replaced it: holding a place would start it once more."""
    cluster = two_nodes("PodLifeTime", "{maxPodLifeTimeSeconds: 60}")
    cluster.pod("done", "a", status={"phase": "Succeeded"}, creation_timestamp=cluster.ago(90))
    cluster.pod("runs", "a", creation_timestamp=cluster.ago(80))
    jobs: list[ObjectDesired] = []
    cluster.record = lambda record: jobs.append(record.event) if isinstance(record.event, ObjectDesired) else None  # type: ignore[method-assign]
    case = cluster.cycle()
    assert case is not None
    assert [(each.pod, each.destination, each.ended) for each in case.victims] == [
        ("default/done", "", True),
        ("default/runs", "b", False),
    ]
    assert [job.body["spec"]["mode"] for job in jobs if job.body] == [EVICT_DIRECTLY, RESERVATION_FIRST]


@pytest.mark.parametrize(
    ("args", "age_s", "status", "expected"),
    [
        ("{}", 3600, {}, True),
        ("{}", 3599, {}, False),
        ("{minPodLifetimeSeconds: 0}", 1, {}, True),
        ("{reasons: [Evicted]}", 3600, {"reason": "Evicted"}, True),
        ("{reasons: [OOMKilled]}", 3600, {"reason": "Evicted", "container_states": (KILLED,)}, True),
        ("{reasons: [Error]}", 3600, {"reason": "Evicted", "container_states": (KILLED,)}, False),
        ("{exitCodes: [1]}", 3600, {"container_states": (KILLED,)}, False),
        ("{exitCodes: [137]}", 3600, {"container_states": (KILLED,)}, True),
        ("{excludeOwnerKinds: [ReplicaSet]}", 3600, {}, False),
    ],
)
def test_a_failed_pod_is_removed_that_matches(args: str, age_s: int, status: dict[str, Any], expected: bool) -> None:
    cluster = two_nodes("RemoveFailedPods", args)
    cluster.pod("p", "a", status={"phase": "Failed", **status}, creation_timestamp=cluster.ago(age_s))
    cluster.pod("done", "a", status={"phase": "Succeeded"}, creation_timestamp=cluster.ago(9_000))
    cluster.pod("runs", "a", creation_timestamp=cluster.ago(9_000))
    assert victims(cluster) == (["p"] if expected else [])


def test_failed_pods_are_removed_also_from_a_workload_that_may_lose_none() -> None:
    """With as many failed pods as `maxUnavailablePerWorkload` none of them would ever go."""
    cluster = two_nodes("RemoveFailedPods", "{}")
    for number in range(9):
        failed = {"phase": "Failed", "conditions": ()}
        cluster.pod(f"p{number}", "a", owner="web", status=failed, creation_timestamp=cluster.ago(9_000))
    assert len(victims(cluster)) == 9


def test_pods_with_too_many_restarts_leave_those_with_most_first() -> None:
    cluster = two_nodes("RemovePodsHavingTooManyRestarts", "{podRestartThreshold: 3}")
    for name, counts in {"few": (2,), "some": (2, 1), "most": (9,)}.items():
        states = tuple(ContainerState(name=f"c{number}", restart_count=count) for number, count in enumerate(counts))
        cluster.pod(name, "a", status={"container_states": states})
    cluster.pod("init", "a", status={"container_states": (ContainerState(kind="init", restart_count=9),)})
    assert victims(cluster) == ["most", "some"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("{podRestartThreshold: 5}", ["loops", "runs"]),
        ("{podRestartThreshold: 5, states: [CrashLoopBackOff]}", ["loops"]),
        ("{podRestartThreshold: 5, states: [Running]}", ["runs"]),
        ("{podRestartThreshold: 5, includingInitContainers: true, states: [CrashLoopBackOff]}", ["init", "loops"]),
    ],
)
def test_restarts_count_in_some_states_alone(args: str, expected: list[str]) -> None:
    cluster = two_nodes("RemovePodsHavingTooManyRestarts", args)
    pending = {"phase": "Pending"}
    cluster.pod("loops", "a", status={**pending, "container_states": (LOOPING,)})
    cluster.pod("runs", "a", status={"container_states": (ContainerState(name="c", restart_count=5),)})
    init = ContainerState(name="i", kind="init", restart_count=9, waiting="CrashLoopBackOff")
    cluster.pod("init", "a", status={**pending, "container_states": (init,)})
    assert victims(cluster) == expected


@pytest.mark.parametrize(
    ("plugin", "args", "path", "reason"),
    [
        ("PodLifeTime", "{}", "", "no criterion"),
        ("PodLifeTime", "{states: [CrashLopBackOff]}", ".states[0]", "CrashLoopBackOff"),
        ("PodLifeTime", "{conditions: [{}]}", ".conditions[0]", "empty"),
        ("PodLifeTime", "{maxPodLifeTimeSecond: 5}", "", "maxPodLifeTimeSeconds"),
        ("PodLifeTime", "{states: [Failed], ownerKinds: {include: [a], exclude: [b]}}", ".ownerKinds", "include"),
        ("RemoveFailedPods", "{minPodLifetimeSeconds: -1}", ".minPodLifetimeSeconds", "0"),
        ("RemovePodsHavingTooManyRestarts", "{}", ".podRestartThreshold", "absent"),
        ("RemovePodsHavingTooManyRestarts", "{podRestartThreshold: 0}", ".podRestartThreshold", "1"),
        ("RemovePodsHavingTooManyRestarts", "{podRestartThreshold: 1, states: [Failed]}", ".states[0]", "Running"),
    ],
)
def test_bad_arguments_are_rejected_with_path_and_reason(plugin: str, args: str, path: str, reason: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_configuration(config("deschedule", plugin, args))
    assert caught.value.path == f"profiles[0].pluginConfig[0].args{path}"
    assert reason in caught.value.reason
