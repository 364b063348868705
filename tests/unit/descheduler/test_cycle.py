"""A cycle: cases with destinations that the scheduler finds, limits, dry runs, and rules against circles."""

from typing import Any

import pytest

from cli.scheduling.why_eviction_case import ExplainedVictim, case_lines, explained
from services.descheduler.configuration.config_reload import config_drafts
from services.descheduler.framework.cycle import decide_cycle, plan_cycle
from services.descheduler.plugins.registry import REGISTRY
from services.descheduler.settings import DecisionSettings
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.domain.move_destinations import DestinationsResponse
from shared.domain.offered_config import OfferedConfig
from shared.events import Draft, RecordedEvent
from shared.events.cluster import PodEvicted
from shared.events.descheduling import DeschedulingCycled, EvictionCaseOpened
from shared.events.intents import EvictionRequested
from shared.events.migration import MigrationEvictionDecided
from tests.unit.descheduler.small_cluster import APART, CONFIG, WEB, SmallCluster

GANG = {"gang.scheduling.koordinator.sh/name": "train", "gang.scheduling.koordinator.sh/min-available": "2"}


def hot_cluster(config: str = CONFIG, settings: DecisionSettings | None = None) -> SmallCluster:
    """One hot node with three pods of 3 cores, one cold node, and one in the middle."""
    cluster = SmallCluster(config, settings)
    for name in ("hot", "cold", "middle"):
        cluster.node(name)
    for number in range(3):
        cluster.pod(f"web-{number}", "hot", owner="web")
    cluster.pod("rest", "middle")
    report(cluster)
    return cluster


def report(cluster: SmallCluster) -> None:
    """The reports of all nodes."""
    cluster.report("hot", {f"web-{number}": 3_000 for number in range(3)})
    cluster.report("cold", {}, system=500)
    cluster.report("middle", {"rest": 5_000})


def test_a_victim_has_a_destination_and_a_job_and_the_case_records_the_expected_gain() -> None:
    cluster = hot_cluster()
    case = cluster.cycle()
    assert case is not None
    assert case.case == "lownodeload-1"
    assert [(each.node, each.resource, each.measured, each.limit) for each in case.causes] == [
        ("hot", "cpu", 9_000, 7_000)
    ]
    (victim,) = case.victims
    assert (victim.node, victim.destination, victim.usage["cpu"]) == ("hot", "cold", 3_000)
    assert victim.reason == "node is overutilized, node cpu usage(90.00%)>threshold(70.00%)"
    assert [(each.before, each.after) for each in case.expected] == [(9_000, 6_000)]
    job = cluster.state.desired("podmigrationjobs.scheduling.koordinator.sh", victim.job)
    assert job is not None
    assert job["spec"]["podRef"] == {
        "namespace": "default",
        "name": victim.pod.removeprefix("default/"),
        "uid": victim.pod_uid,
    }
    assert job["metadata"]["annotations"]["koordinator.sh/evict-trigger"] == "LowNodeLoad"
    assert job["metadata"]["annotations"]["descheduler.koordstream/destination"] == "cold"


def test_a_plugin_that_fails_is_recorded_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Any) -> None:
        raise ZeroDivisionError("a node without capacity")

    broken = dict(REGISTRY) | {"RemoveDuplicates": REGISTRY["RemoveDuplicates"]._replace(run=failing)}
    monkeypatch.setattr("services.descheduler.framework.cycle.REGISTRY", broken)
    cluster = hot_cluster(CONFIG.replace("[{name: LowNodeLoad}]", "[{name: RemoveDuplicates}, {name: LowNodeLoad}]"))
    configuration = cluster.state.configuration
    assert configuration is not None
    plan = plan_cycle(cluster.state, configuration, DecisionSettings(), cluster.now_ns)
    assert list(plan.faults.values()) == ["ZeroDivisionError('a node without capacity')"]
    assert [each.plugin for each in plan.cases if each.chosen] == ["LowNodeLoad"]
    (cycled,) = [
        draft.event
        for draft in decide_cycle(plan, DestinationsResponse(), configuration, DecisionSettings())
        if isinstance(draft.event, DeschedulingCycled)
    ]
    assert list(cycled.faults) == [f"{configuration.profiles[0].name}/RemoveDuplicates"]


def test_without_an_answer_of_the_scheduler_no_pod_moves() -> None:
    case = hot_cluster().cycle(answers=False)
    assert case is not None
    assert case.victims == ()
    assert case.passed_over[-1].why == "no destination: the scheduler did not answer in time"


def apart_cluster(settings: DecisionSettings) -> SmallCluster:
    """A hot node with a pod that may share no node with `app: web`, and pods of that label on all others."""
    cluster = SmallCluster(settings=settings)
    for name in ("hot", "cold", "middle"):
        cluster.node(name)
    cluster.pod("web-0", "hot", owner="web", affinity=APART, labels=WEB)
    cluster.pod("web-1", "cold", owner="web", labels=WEB)
    cluster.pod("web-2", "middle", owner="web", labels=WEB)
    cluster.report("hot", {"web-0": 3_000}, system=6_000)
    cluster.report("cold", {"web-1": 500})
    cluster.report("middle", {"web-2": 5_000})
    return cluster


def test_a_pod_that_the_scheduler_places_nowhere_stays_although_labels_and_usage_fit() -> None:
    case = apart_cluster(DecisionSettings()).cycle()
    assert case is not None
    assert case.victims == ()
    assert case.passed_over[-1].why == "no destination: no other node admits the pod"


def test_a_pod_without_a_destination_moves_only_where_that_is_configured() -> None:
    case = apart_cluster(DecisionSettings(without_destination=True)).cycle()
    assert case is not None
    assert [(victim.pod, victim.destination) for victim in case.victims] == [("default/web-0", "")]


def test_a_hot_node_is_no_destination() -> None:
    cluster = hot_cluster()
    cluster.node("hot-too")
    cluster.report("hot-too", {}, system=9_500)
    case = cluster.cycle()
    assert case is not None
    assert {victim.destination for victim in case.victims} <= {"cold", "middle"}


def test_a_node_from_which_a_case_moves_pods_is_no_source_meanwhile() -> None:
    cluster = hot_cluster()
    assert cluster.cycle() is not None
    cluster.wait(10)
    report(cluster)
    assert cluster.cycle() is None


def crowded_cluster() -> tuple[SmallCluster, EvictionCaseOpened]:
    """A hot node that three pods of one core have to leave, of which two go first; and its case."""
    cluster = SmallCluster()
    for name in ("hot", "cold", "middle"):
        cluster.node(name)
    for number in range(9):
        cluster.pod(f"web-{number}", "hot", owner="web")
    cluster.report("hot", {f"web-{number}": 1_000 for number in range(9)}, system=500)
    cluster.report("cold", {}, system=500)
    cluster.report("middle", {}, system=5_000)
    case = cluster.cycle()
    assert case is not None
    assert len(case.victims) == 3
    return cluster, case


def test_the_next_pods_of_a_node_leave_once_the_effect_of_the_first_is_measured() -> None:
    cluster, case = crowded_cluster()
    (first,) = cluster.state.cases.cases[case.case].steps
    assert first.pods == tuple(victim.pod for victim in case.victims[:2])
    for victim in case.victims[:2]:
        cluster.job(victim.job, "Succeeded")
    cluster.wait(10)
    assert cluster.advance() == []  # the node has not reported since
    cluster.report("hot", {f"web-{number}": 1_000 for number in range(7)}, system=500)
    (second,) = cluster.advance()
    assert second.pods == (case.victims[2].pod,)
    assert cluster.state.desired("podmigrationjobs.scheduling.koordinator.sh", case.victims[2].job) is not None
    assert cluster.close() == []


def test_a_case_stops_when_the_measured_effect_does_not_follow() -> None:
    cluster, case = crowded_cluster()
    for victim in case.victims[:2]:
        cluster.job(victim.job, "Succeeded")
    cluster.wait(10)
    cluster.report("hot", {f"web-{number}": 1_000 for number in range(7)}, system=2_000)
    (step,) = cluster.advance()
    assert step.stopped == "cpu of hot fell by 500, not by the expected 2000"
    (closed,) = cluster.close()
    assert closed.outcome == "partly"
    assert [(each.outcome, each.why) for each in closed.victims] == [
        ("moved", ""),
        ("moved", ""),
        ("stayed", "cpu of hot fell by 500, not by the expected 2000"),
    ]


def test_a_victim_whose_successor_was_not_awaited_is_evicted_and_not_moved() -> None:
    cluster = hot_cluster()
    case = cluster.cycle()
    assert case is not None
    (victim,) = case.victims
    cluster.delete(victim.pod.removeprefix("default/"))
    cluster.job(victim.job, "Succeeded", mode="EvictDirectly")
    cluster.wait(400)
    cluster.report("hot", {})
    (closed,) = cluster.close()
    assert closed.outcome == "evicted"
    assert [(each.outcome, each.why) for each in closed.victims] == [
        ("evicted", "its controller makes it anew on any node")
    ]


def test_a_case_of_which_no_pod_could_be_moved_stops() -> None:
    cluster, case = crowded_cluster()
    for victim in case.victims[:2]:
        cluster.job(victim.job, "Failed")
    (step,) = cluster.advance()
    assert step.stopped == "none of the pods before could be moved"


def test_the_pod_that_replaced_a_victim_does_not_move_again_for_the_same_cause() -> None:
    cluster = hot_cluster()
    first = cluster.cycle()
    assert first is not None
    (victim,) = first.victims
    cluster.delete(victim.pod.removeprefix("default/"))
    cluster.pod("web-new", "cold", owner="web")
    cluster.job(victim.job, "Succeeded", bound="web-new")
    cluster.wait(400)
    cluster.report("cold", {"web-new": 3_000}, system=5_000)
    cluster.report("hot", {})
    cluster.report("middle", {"rest": 5_000})
    assert [each.outcome for each in cluster.close()] == ["moved"]
    second = cluster.cycle()
    assert second is None or not second.victims
    cluster.wait(1_800)
    cluster.report("cold", {"web-new": 3_000}, system=5_000)
    cluster.report("hot", {})
    cluster.report("middle", {"rest": 5_000})
    third = cluster.cycle()
    assert third is not None
    assert [victim.pod for victim in third.victims] == ["default/web-new"]


def test_a_node_that_received_pods_is_no_source_at_once() -> None:
    cluster = hot_cluster()
    first = cluster.cycle()
    assert first is not None
    cluster.pod("other", "cold")
    cluster.wait(60)
    cluster.report("cold", {"other": 3_000}, system=5_000)
    cluster.report("hot", {})
    cluster.report("middle", {"rest": 5_000})
    assert cluster.cycle() is None
    cluster.wait(300)
    cluster.report("cold", {"other": 3_000}, system=5_000)
    cluster.report("hot", {})
    cluster.report("middle", {"rest": 5_000})
    later = cluster.cycle()
    assert later is not None
    assert [victim.pod for victim in later.victims] == ["default/other"]


def gang_on_hot_node(cpu: str) -> SmallCluster:
    """A gang of two on a hot node, which cannot spare a member; one node has capacity for them, if they are small."""
    cluster = SmallCluster()
    for name in ("hot", "cold", "middle"):
        cluster.node(name)
    for name in ("a", "b"):
        cluster.pod(name, "hot", owner=f"of-{name}", annotations=GANG, cpu=cpu)
    cluster.pod("other", "middle", cpu="9")
    cluster.report("hot", {"a": 1_000, "b": 1_000}, system=8_000)
    cluster.report("cold", {})
    cluster.report("middle", {"other": 5_000})
    return cluster


def test_the_members_of_a_gang_that_a_plugin_chose_leave_in_one_step() -> None:
    cluster = gang_on_hot_node("2")
    cluster.append(*config_drafts(cluster.state, OfferedConfig("t", CONFIG), DecisionSettings(step_pods_per_node=1)))
    case = cluster.cycle()
    assert case is not None
    assert [(each.pod, each.gang, each.destination) for each in case.victims] == [
        ("default/a", "default/train", "cold"), ("default/b", "default/train", "cold")
    ]  # fmt: skip
    (step,) = cluster.state.cases.open[0].steps
    assert step.pods == ("default/a", "default/b")
    a, _ = case.victims
    victim = ExplainedVictim(a.pod, a.node, a.destination, a.reason, a.job, "Running", "", gang=a.gang)
    lines = list(case_lines(explained(RecordedEvent("descheduling", 1, case, cluster.now_ns), None, [victim])))
    assert "  victim    default/a leaves hot for cold with its gang default/train (Running)" in lines


def test_a_gang_of_which_one_member_finds_no_destination_stays_as_a_whole() -> None:
    cluster = gang_on_hot_node("6")
    case = cluster.cycle()
    assert case is not None
    assert case.victims == ()
    assert [(each.pod, each.why) for each in case.passed_over] == [
        ("default/a", "it leaves with default/b or not at all, which has no destination"),
        ("default/b", "no destination: no other node admits the pod"),
    ]


@pytest.mark.parametrize(
    ("given", "allowed", "why"),
    [
        ({"kind": "DaemonSet"}, "", "a DaemonSet owns it"),
        (
            {"kind": ""},
            "evictAllBarePods",
            "it has no owner that would replace it (the argument evictAllBarePods is off)",
        ),
        (
            {"priority": 2_000_000_000},
            "evictSystemCriticalPods",
            "it is system-critical (the argument evictSystemCriticalPods is off)",
        ),
    ],
)
def test_protected_pods_stay_unless_the_configuration_lets_them_move(
    given: dict[str, Any], allowed: str, why: str
) -> None:
    def chosen(args: str) -> list[str]:
        extra = f"      - {{name: MigrationController, args: {{{args}}}}}\n"
        cluster = SmallCluster(CONFIG + extra)
        for name in ("hot", "cold", "middle"):
            cluster.node(name)
        cluster.pod("protected", "hot", **given)
        cluster.pod("free", "hot")
        cluster.report("hot", {"protected": 2_500, "free": 2_000}, system=5_000)
        cluster.report("cold", {})
        cluster.report("middle", {}, system=5_000)
        case = cluster.cycle()
        assert case is not None
        if not args:
            assert [each.why for each in case.passed_over if each.pod == "default/protected"] == [why]
        return [victim.pod.removeprefix("default/") for victim in case.victims]

    assert chosen("") == ["free"]
    if allowed:
        assert "protected" in chosen(f"{allowed}: true")


@pytest.mark.parametrize("limit", ["maxNoOfPodsToEvictTotal: 0", "maxNoOfPodsToEvictPerNode: 0"])
def test_a_limit_of_zero_blocks_all(limit: str) -> None:
    case = hot_cluster(CONFIG + limit + "\n").cycle()
    assert case is None


def test_a_dry_run_records_the_case_and_creates_nothing() -> None:
    cluster = hot_cluster(CONFIG + "dryRun: true\n")
    case = cluster.cycle()
    assert case is not None
    assert case.dry_run
    assert [victim.job for victim in case.victims] == [""]
    assert cluster.state.desired_fields == {}
    assert [each.outcome for each in cluster.close()] == ["dry run"]


def test_a_cycle_that_finds_nothing_records_nothing() -> None:
    cluster = hot_cluster()
    cluster.report("hot", {})
    before = dict(cluster.state.positions)
    assert cluster.cycle() is None
    assert cluster.state.positions == before


def test_a_closed_case_has_the_benefit_that_was_measured_afterwards() -> None:
    cluster = hot_cluster()
    case = cluster.cycle()
    assert case is not None
    (victim,) = case.victims
    cluster.wait(30)
    cluster.job(victim.job, "Succeeded")
    assert cluster.close() == []  # no report yet since the move ended
    cluster.wait(30)
    cluster.report("hot", {"web-0": 3_100, "web-1": 3_000})
    (closed,) = cluster.close()
    assert closed.outcome == "moved"
    assert [(each.before, each.expected, each.after) for each in closed.measured] == [(9_000, 6_000, 6_100)]


@pytest.mark.parametrize("terminates", [False, True])
def test_a_victim_whose_job_failed_after_its_eviction_has_left_its_node(terminates: bool) -> None:
    cluster = hot_cluster()
    case = cluster.cycle()
    assert case is not None
    (victim,) = case.victims
    decided = MigrationEvictionDecided(
        job=victim.job,
        job_uid=victim.job,
        pod=victim.pod,
        pod_uid=victim.pod_uid,
        node=victim.node,
        destination=victim.destination,
        controller=victim.owner,
        method="Eviction",
        reason="",
    )
    cluster.append(Draft(decided), Draft(EvictionRequested(pod_uid=victim.pod_uid, pod=victim.pod, reason="")))
    cluster.observe_outcome(PodEvicted(pod=victim.pod, pod_uid=victim.pod_uid))
    name = victim.pod.removeprefix("default/")
    if terminates:
        cluster.pod(name, victim.node, deletion_timestamp=cluster.ago(1))
    else:
        cluster.delete(name)
    cluster.job(victim.job, "Failed")
    cluster.wait(30)
    cluster.report("hot", {"web-0": 3_100, "web-1": 3_000})
    (closed,) = cluster.close()
    assert [(each.outcome, each.why) for each in closed.victims] == [("evicted", "Failed")]
    assert cluster.state.cases.left[victim.pod_uid], "no pod of its workload is to return to the node"


def test_the_state_is_the_same_after_its_snapshot() -> None:
    cluster = hot_cluster()
    cluster.cycle()
    restored = DeschedulerState()
    restored.restore(cluster.state.encode())
    assert restored.encode() == cluster.state.encode()
    assert restored.configuration == cluster.state.configuration
    assert restored.cases.open == cluster.state.cases.open
