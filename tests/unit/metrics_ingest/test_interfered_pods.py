"""Pods that neighbours slow down: recorded once believed; a job for the suspect, a label of the node; what is kept."""

import pytest
from msgspec import structs

from services.metrics_ingest.agent_actions.decide_action import action_events
from services.metrics_ingest.agent_actions.interfered_pods import interference_differences
from services.metrics_ingest.agent_actions.node_pods_and_actions_state import ActionIngestState
from services.metrics_ingest.agent_actions.retention_carry_forward import CARRY_FORWARD
from services.metrics_ingest.agent_actions.service_manifest import MANIFEST
from shared.agents import actions
from shared.agents.actions import ActionReport, AnyAction, BadAction, InterferenceEnded, SignalDeviation
from shared.events import Event
from shared.events.cluster import NodeDeleted, NodeObserved, PodDeleted
from shared.events.intents import ObjectDesired
from shared.events.nodes import DeviatingSignal, InterferenceSuspect, PodInterfered, PodInterferenceEnded
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.resource_names import MIGRATION_JOBS
from shared.log.retention_carry_forward import Kept
from shared.runtime.intent_rights import refusal
from tests.support.pods import observed
from tests.unit.metrics_ingest.agent_action_reports import interfered, label, pod_interfered
from tests.unit.metrics_ingest.cluster_history import START_NS, Logs, fold, pod

NOTHING_KEPT = Kept(lambda _: False, 0)


def action_report(action: AnyAction) -> ActionReport:
    return ActionReport("a", "boot", 1, START_NS, action)


def events(state: ActionIngestState, action: AnyAction) -> list[Event]:
    return [draft.event for draft in action_events(state, action_report(action), max_clock_skew_s=30, now_ns=START_NS)]


def world() -> Logs:
    logs = Logs()
    logs.append("cluster", NodeObserved(node="a", object=Node(metadata=Metadata(name="a"))))
    for name, node, qos, mirror in (
        ("p", "a", "LS", ""), ("batch", "a", "BE", ""), ("elsewhere", "b", "BE", ""), ("static", "a", "BE", "hash"),
    ):  # fmt: skip
        logs.append("cluster", observed(pod(name, node, qos=qos, mirror=mirror)))
    return logs


@pytest.fixture
def state() -> ActionIngestState:
    return fold(ActionIngestState, world().contexts["cluster"])


def test_a_slowed_pod_and_its_end_are_recorded_with_the_names_of_pod_and_suspects(state: ActionIngestState) -> None:
    [found] = events(state, interfered("uid-p", "unknown"))
    assert found == PodInterfered(
        node="a", boot="boot", number=1, at_ns=START_NS, pod_uid="uid-p", pod="d/p", since_ns=START_NS - 10 * SECOND,
        deviations=(DeviatingSignal("schedulingLatency", 8000.0, 500.0, 1000.0),),
        suspects=(InterferenceSuspect("unknown", 97, "schedulingLatency", "cpu", 1900.0),),
    )  # fmt: skip
    [found] = events(state, interfered("gone", "uid-p"))
    assert isinstance(found, PodInterfered)
    assert (found.pod, found.suspects[0].pod) == ("", "d/p")
    assert events(state, InterferenceEnded("uid-p", "recovered")) == [
        PodInterferenceEnded(
            node="a", boot="boot", number=1, at_ns=START_NS, pod_uid="uid-p", reason="recovered", pod="d/p"
        )
    ]


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (interfered("uid-elsewhere", "uid-p"), "action.pod_uid d/elsewhere runs on b"),
        (interfered("uid-p", "uid-elsewhere"), "action.suspects[uid-elsewhere] d/elsewhere runs on b"),
        (interfered("uid-p", "uid-p"), "action.suspects[uid-p] is the pod itself"),
        (InterferenceEnded("uid-elsewhere", "gone"), "action.pod_uid d/elsewhere runs on b"),
    ],
)
def test_a_slowed_pod_of_another_node_is_not_believed(state: ActionIngestState, action: AnyAction, why: str) -> None:
    with pytest.raises(BadAction) as found:
        events(state, action)
    assert why in str(found.value).replace(":", "")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_measure_that_is_no_number_is_rejected_when_it_is_read(value: float) -> None:
    action = interfered("uid-p", "uid-q")
    bad = structs.replace(action, deviations=(SignalDeviation("cpi", value, 1.0, 1.0),))
    with pytest.raises(BadAction, match=r"deviations\[0\].value|deviations\[...\].value"):
        actions.decode(actions.encode(action_report(bad)), "a")


def test_the_answer_migrate_makes_a_job_for_the_first_suspect_that_ingest_may_request(state: ActionIngestState) -> None:
    found, job = events(state, interfered("uid-p", "uid-batch", "migrate"))
    assert isinstance(found, PodInterfered)
    assert isinstance(job, ObjectDesired)
    assert (job.resource, job.name, found.job, found.done) == (MIGRATION_JOBS, "interference-uid-batch", job.name, "")
    assert job.body == {
        "metadata": {"annotations": {"koordinator.sh/evict-reason": "it slows down d/p on a: schedulingLatency, correlation 97 %"}},
        "spec": {"podRef": {"namespace": "d", "name": "batch", "uid": "uid-batch"}, "ttl": "5m"},
    }  # fmt: skip
    assert refusal("nodes-0", MANIFEST.intents, job) == ""
    assert refusal("nodes-0", MANIFEST.intents, structs.replace(job, name="mine")) != ""


@pytest.mark.parametrize(
    ("suspect", "why"),
    [
        ("hash", "d/static is not migrated: it is a static pod"),
        ("unknown", "unknown is not migrated: it does not run on the node any more"),
    ],
)
def test_no_job_is_made_for_a_pod_that_cannot_move(state: ActionIngestState, suspect: str, why: str) -> None:
    [found] = events(state, interfered("uid-p", suspect, "migrate"))
    assert isinstance(found, PodInterfered)
    assert (found.done, found.job) == (why, "")


def test_an_agent_cannot_have_a_pod_moved_that_is_not_best_effort(state: ActionIngestState) -> None:
    [found] = events(state, interfered("uid-batch", "uid-p", "migrate"))
    assert isinstance(found, PodInterfered)
    assert found.done == "d/p is not migrated: it is not best effort"


def differences(logs: Logs) -> list[Event]:
    return [draft.event for draft in interference_differences(fold(ActionIngestState, logs.in_order()), 7)]


def test_a_node_has_the_label_while_a_pod_on_it_is_slowed_down_and_the_answer_is_a_hint() -> None:
    logs = world()
    logs.append("nodes-0", pod_interfered("p", "a", 1))
    assert differences(logs) == []  # the answer is none
    logs.append("nodes-0", pod_interfered("batch", "a", 2, "hint"))
    assert differences(logs) == [label("a", "true")]
    logs.append("nodes-0", label("a", "true"))
    assert differences(logs) == []
    ended = PodInterferenceEnded(node="a", boot="x", number=3, at_ns=0, pod_uid="uid-batch", reason="recovered")
    logs.append("nodes-0", ended)
    assert differences(logs) == [label("a", None)]
    assert refusal("nodes-0", MANIFEST.intents, label("a", "true")) == ""
    logs.append("cluster", NodeDeleted(node="a", node_uid=""))
    assert differences(logs) == []  # the label went with it


def test_the_mark_of_a_pod_that_is_gone_ends_without_its_agent_and_so_does_the_label() -> None:
    logs = world()
    logs.append("nodes-0", pod_interfered("p", "a", 1, "hint"), label("a", "true"))
    logs.append("cluster", PodDeleted(pod="d/p", pod_uid="uid-p"))
    gone = PodInterferenceEnded(node="a", boot="", number=0, at_ns=7, pod_uid="uid-p", reason="gone", pod="d/p")
    assert differences(logs) == [gone, label("a", None)]
    before = fold(ActionIngestState, logs.in_order()).recorded_actions
    logs.append("nodes-0", gone, label("a", None))
    assert differences(logs) == []
    assert fold(ActionIngestState, logs.in_order()).recorded_actions == before


def test_a_pod_that_the_cluster_does_not_have_keeps_no_mark() -> None:
    logs = world()
    logs.append("nodes-0", structs.replace(pod_interfered("p", "a", 1, "hint"), pod="", pod_uid="unknown"))
    assert differences(logs) == []
    assert fold(ActionIngestState, logs.in_order()).interfered == {}


def test_marks_labels_and_jobs_in_force_outlast_their_partition() -> None:
    logs = world()
    job = ObjectDesired(resource=MIGRATION_JOBS, name="interference-uid-batch", body={"spec": {}})
    logs.append("nodes-0", pod_interfered("p", "a", 1, "hint"), job, label("a", "true"))
    ended = ObjectDesired(resource=MIGRATION_JOBS, name="interference-uid-gone", body={"spec": {}})
    logs.append("nodes-0", ended)
    for number in range(2, 400):
        logs.append("nodes-0", structs.replace(pod_interfered("batch", "b", number)))
    records = logs.contexts["nodes-0"]
    holds = CARRY_FORWARD.holds(fold(ActionIngestState, logs.in_order()), NOTHING_KEPT)
    assert [holds(record) for record in records[:4]] == [True, True, True, False]
    assert not holds(records[10])  # neither in force nor among the numbers that are kept
    assert len({CARRY_FORWARD.subject(record) for record in records[:4]}) == 4
