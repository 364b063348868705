"""Defragment: pods leave for a unit that waits, all or none, each to the node that the scheduler found; and no loops."""

import pytest
from msgspec.structs import replace

from cli.kinds.evictions import listed
from cli.scheduling.why_eviction_case import ExplainedVictim, case_lines, explained
from services.descheduler.configuration.config_reload import config_drafts
from services.descheduler.framework.cycle import plan_cycle
from services.descheduler.settings import DecisionSettings
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.domain.offered_config import OfferedConfig
from shared.events import Draft, RecordedEvent
from shared.events.descheduling import EvictionCaseOpened, WaitingUnit
from tests.unit.descheduler.small_cluster import SmallCluster

CONFIG = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 10s
{limits}profiles:
  - plugins:
      balance: {{enabled: [{{name: Defragment}}]}}
    pluginConfig:
      - name: Defragment
        args: {{retryAfterSeconds: 900{args}}}
"""
NAME, LEAST = "gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/min-available"


def cluster_of(
    config: str = "", args: str = "", *, spare: bool = True, owner: str = "", kind_on_a: str = "ReplicaSet"
) -> SmallCluster:
    """Nodes of 10 cores: a and b with pods of 3 and 5 cores, c and d with one of 5, and e with one of 3, which stay; and a
    gang of two pods of 7 cores, so that one of them fits on e, and the other after a move.

    Args:
        spare: there is a node e; without it two pods must move.
        owner: of all pods; each has its own by default.
    """
    cluster = SmallCluster(CONFIG.format(limits=config, args=args))
    for name, cores in {"a": "35", "b": "35", "c": "5", "d": "5", **({"e": "3"} if spare else {})}.items():
        cluster.node(name)
        for number in cores:
            kind = {"a": kind_on_a, "b": "ReplicaSet"}.get(name, "DaemonSet")
            cluster.pod(f"{name}{number}", name, cpu=number, owner=owner, kind=kind)
    wait(cluster, "m0", "m1")
    return cluster


def wait(cluster: SmallCluster, *members: str, gang: str = "train", seconds: int = 600) -> None:
    """Members of a gang wait."""
    for name in members:
        cluster.pod(
            name, "", cpu="7", annotations={NAME: gang, LEAST: str(len(members))}, creation_timestamp=cluster.ago(seconds),
            status={"phase": "Pending", "conditions": ()},
        )  # fmt: skip


def bind(cluster: SmallCluster, name: str, node: str) -> None:
    """A waiting member gets a node."""
    cluster.delete(name)
    cluster.pod(name, node, cpu="7", annotations={NAME: "train", LEAST: "2"})


def move(cluster: SmallCluster, case: EvictionCaseOpened) -> None:
    """All victims of a case move."""
    for victim in case.victims:
        cluster.delete(victim.pod.removeprefix("default/"))
        cluster.pod(f"new-{victim.pod_uid}", victim.destination, cpu=victim.pod[-1])
        cluster.job(victim.job, "Succeeded", bound=f"new-{victim.pod_uid}")


def lines(cluster: SmallCluster, case: EvictionCaseOpened) -> list[str]:
    closed = cluster.state.cases.cases[case.case].closed
    victims = [ExplainedVictim(each.pod, each.node, each.destination, "", "", "moved", "") for each in case.victims]
    return list(case_lines(explained(RecordedEvent("descheduling", 1, case, 0), closed, victims)))


def test_all_victims_leave_in_one_step_each_to_the_node_that_the_scheduler_planned() -> None:
    cluster = cluster_of()
    case = cluster.cycle()
    assert case is not None
    assert case.unit == WaitingUnit("default/train", "Gang", 600, 300, case.unit.nodes if case.unit else {}, 120)
    assert case.unit is not None
    assert set(case.unit.nodes) == {"m0", "m1"}
    assert [(each.pod, each.node) for each in case.victims] == [("default/a5", "a")]
    assert set(case.unit.nodes.values()) == {"a", "e"}
    assert all(victim.destination not in case.unit.nodes.values() for victim in case.victims)
    (step,) = cluster.state.cases.cases[case.case].steps
    assert step.pods == tuple(victim.pod for victim in case.victims)
    assert cluster.state.jobs_together() == {case.case: {each.job: each.pod_uid for each in case.victims}}
    assert cluster.advance() == []
    assert (
        "cause     gang default/train has waited for 600 s, minWaitSeconds is 300; it fits on"
        in lines(cluster, case)[1]
    )


def test_the_case_is_closed_as_admitted_once_each_member_has_a_node() -> None:
    cluster = cluster_of()
    case = cluster.cycle()
    assert case is not None
    assert case.unit is not None
    move(cluster, case)
    assert cluster.close() == []
    cluster.wait(60)
    bind(cluster, "m0", case.unit.nodes["m0"])
    assert cluster.close() == []
    bind(cluster, "m1", case.unit.nodes["m1"])
    (closed,) = cluster.close()
    assert (closed.outcome, closed.unit) == ("moved", "admitted")
    assert "  unit      gang default/train: admitted" in lines(cluster, case)
    assert "default/train: admitted" in listed(case, 0, closed).gain
    assert cluster.cycle() is None


def stuck() -> tuple[SmallCluster, EvictionCaseOpened]:
    """The moves for a gang are made, and another pod takes the capacity."""
    cluster = cluster_of()
    case = cluster.cycle()
    assert case is not None
    move(cluster, case)
    cluster.pod("thief", case.victims[0].node, cpu="6")
    return cluster, case


def test_a_unit_that_was_not_admitted_in_time_is_not_tried_again_for_a_set_time_and_no_pod_moves_twice() -> None:
    cluster, case = stuck()
    cluster.wait(119)
    assert cluster.close() == []
    assert cluster.cycle() is None
    cluster.wait(1)
    (closed,) = cluster.close()
    assert (closed.outcome, closed.unit) == ("moved", "still waits")
    questions = len(cluster.questions)
    cluster.wait(899)
    assert cluster.cycle() is None
    assert len(cluster.questions) == questions
    cluster.wait(1)
    again = cluster.cycle()
    assert len(cluster.questions) > questions
    moved = {f"default/new-{victim.pod_uid}" for victim in case.victims}
    assert again is None or not moved & {victim.pod for victim in again.victims}


def test_the_time_of_a_unit_outlasts_a_restart() -> None:
    cluster, _ = stuck()
    cluster.wait(120)
    cluster.close()
    restarted = DeschedulerState()
    restarted.restore(cluster.state.encode())
    cluster.state = restarted
    assert cluster.state.cases.tried_units() == {"default/train": cluster.now_ns}
    cluster.wait(899)
    assert cluster.cycle() is None


def test_a_case_that_moves_nothing_lets_its_unit_be_planned_again() -> None:
    cluster, twin = cluster_of(), cluster_of()
    case = twin.cycle()
    assert case is not None
    cluster.append(Draft(replace(case, victims=())))
    (closed,) = cluster.close()
    assert closed.unit == "still waits"
    assert cluster.state.cases.tried_units() == {}
    again = cluster.cycle()
    assert again is not None
    assert again.victims


def test_a_victim_does_not_go_to_a_node_that_its_workload_left_lately() -> None:
    case = cluster_of().cycle()
    assert case is not None
    (victim,) = case.victims
    cluster = cluster_of()
    before = replace(victim, pod="default/earlier", pod_uid="earlier", node=victim.destination, destination="", job="j")
    cluster.append(Draft(replace(case, case="lownodeload-1", plugin="LowNodeLoad", unit=None, victims=(before,))))
    planned = cluster.cycle()
    assert planned is not None
    (moved,) = planned.victims
    assert (moved.pod, moved.node) == (victim.pod, victim.node)
    assert moved.destination not in ("", victim.destination)
    (question,) = cluster.questions
    assert question.left[victim.owner] == (victim.destination,)
    cluster = cluster_of()
    cluster.append(Draft(replace(case, case="lownodeload-1", plugin="LowNodeLoad", unit=None, victims=(before,))))
    cluster.wait(1_800)
    assert cluster.cycle() is not None
    assert [question.left for question in cluster.questions] == [{}]


def test_one_case_at_a_time_and_its_nodes_are_no_destinations_meanwhile() -> None:
    cluster = cluster_of()
    wait(cluster, "n0", "n1", gang="later", seconds=500)
    case = cluster.cycle()
    assert case is not None
    assert case.unit is not None
    assert case.unit.name == "default/train"
    assert cluster.cycle() is None
    configuration = cluster.state.configuration
    assert configuration is not None
    assert not plan_cycle(cluster.state, configuration, DecisionSettings(), cluster.now_ns).questions


def test_a_victim_may_go_to_a_node_that_another_pod_of_the_unit_gets_afterwards() -> None:
    cluster = cluster_of(spare=False)
    for name in ("m0", "m1"):
        cluster.delete(name)
    for name, cores in (("m0", "7"), ("m1", "1")):
        cluster.pod(
            name, "", cpu=cores, annotations={NAME: "train", LEAST: "2"}, creation_timestamp=cluster.ago(600),
            status={"phase": "Pending", "conditions": ()},
        )  # fmt: skip
    cluster.pod("fills-d", "d", cpu="5", kind="DaemonSet")
    cluster.pod("fills-b", "b", cpu="2", kind="DaemonSet")
    cluster.delete("c5")
    cluster.pod("c4", "c", cpu="4", kind="DaemonSet")
    case = cluster.cycle()
    assert case is not None
    assert case.unit is not None
    assert {victim.destination for victim in case.victims} == {"c"}
    assert case.unit.nodes["m1"] == "c"


@pytest.mark.parametrize("args", [", maxMoves: 1", ", namespaces: {exclude: [default]}", ", paused: true", ", kinds: [DevicePod]"])  # fmt: skip
def test_arguments_keep_pods(args: str) -> None:
    cluster = cluster_of(args=args, spare=False)
    assert cluster.cycle() is None


def test_a_victim_that_the_filters_keep_is_named_and_pods_of_another_node_leave() -> None:
    # The replicas of such a workload are not known: the descheduler does not move its pods, the scheduler would.
    cluster = cluster_of(kind_on_a="Unknown")
    case = cluster.cycle()
    assert case is not None
    assert {victim.node for victim in case.victims} == {"b"}
    assert [question.fixed for question in cluster.questions] == [(), ("a5", "a3")]


def test_the_limits_of_a_cycle_hold_for_all_victims_together() -> None:
    assert cluster_of("maxNoOfPodsToEvictTotal: 1\n", spare=False).cycle() is None
    case = cluster_of("maxNoOfPodsToEvictTotal: 2\n", spare=False).cycle()
    assert case is not None
    assert [victim.pod for victim in case.victims] == ["default/a5", "default/b5"]
    blocked = cluster_of("maxNoOfPodsToEvictPerNamespace: 1\n", spare=False)
    assert blocked.cycle() is None
    assert [question.fixed for question in blocked.questions] == [(), ("b5",)]


def test_of_a_workload_one_pod_leaves_for_a_unit() -> None:
    cluster = cluster_of(spare=False, owner="web")
    assert cluster.cycle() is None
    assert [question.fixed for question in cluster.questions] == [(), ("b5",)]


def test_without_an_answer_of_the_scheduler_no_pod_moves_and_a_dry_run_creates_nothing_and_is_not_repeated() -> None:
    assert cluster_of().cycle(answers=False) is None
    cluster = cluster_of(args=", dryRun: true")
    case = cluster.cycle()
    assert case is not None
    assert case.dry_run
    assert not any(victim.job for victim in case.victims)
    (closed,) = cluster.close()
    assert (closed.outcome, closed.unit) == ("dry run", "")
    assert cluster.cycle() is None


def test_of_several_profiles_one_has_a_case() -> None:
    cluster = cluster_of()
    one = next(line for line in CONFIG.splitlines() if line.startswith("  - plugins"))
    profile = CONFIG[CONFIG.index(one) :].format(args="")
    names = [profile.replace("  - plugins", f"  - name: {name}\n    plugins", 1) for name in ("first", "second")]
    text = CONFIG[: CONFIG.index(one)].format(limits="") + "".join(names)
    cluster.append(*config_drafts(cluster.state, OfferedConfig("test", text), DecisionSettings()))
    case = cluster.cycle()
    assert case is not None
    assert case.profile == "first"
    assert len(cluster.questions) == 1
    assert [each.event.case for each in cluster.state.cases.open] == ["defragment-1"]
