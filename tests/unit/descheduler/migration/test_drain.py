"""The drain of a node: its pods move one after the other within the limits of their workloads."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cli.commands.drain import FromLog, headline, how_it_ended
from cli.node.drains_of_node import LastDrain
from services.descheduler.drain_requests import DrainRequests, event_of, fault_of, status_of
from services.descheduler.migration.decide_migration import effective_facts
from services.descheduler.migration.drain import DrainStep, drain_plan
from services.descheduler.migration.pod_migration_job import read_job
from services.descheduler.migration.rate_limits import RateLimits
from services.descheduler.retention_carry_forward import CARRY_FORWARD
from services.descheduler.state.descheduler_state import FOLDED, DeschedulerState
from shared.events import Draft
from shared.events.cluster import NodeObserved
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.log import ConfigApplied
from shared.events.migration import DrainEnded, DrainRequested, MigrationEnded
from shared.kube.drain_control import SUBJECT, DrainCommand, DrainedPod, DrainStatus
from shared.kube.instants import SECOND, instant_ns
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeSpec
from shared.kube.resource_names import CORDON, MIGRATION_JOBS, RESERVATIONS
from shared.runtime.declared_intents import DECLARED
from shared.runtime.intent_rights import refusal
from tests.support.kept_log import KeptLog
from tests.support.migration import migration_args, moved_pod, owner
from tests.support.migration_world import CLUSTER, OWN, World

NODE = "n0"


def cordon(world: World, *, unschedulable: bool) -> None:
    node = Node(metadata=Metadata(name=NODE, uid="uid-n0"), spec=NodeSpec(unschedulable=unschedulable))
    world.append(CLUSTER, NodeObserved(node=NODE, object=node))


def draining(pods: int = 3, **args: object) -> World:
    """A node with so many pods of a StatefulSet of ten, and one of a DaemonSet; its drain was requested."""
    world = World(migration_args(evictQPS=100, objectLimiters={"workload": {"duration": "0s"}}, **args))
    world.workload("web", 10)
    for number in range(pods):
        world.put_pod(moved_pod(f"web-{number}", controller=owner("StatefulSet", "web"), node=NODE))
    world.put_pod(moved_pod("agent", controller=owner("DaemonSet", "agents"), node=NODE))
    cordon(world, unschedulable=False)
    world.append(OWN, DrainRequested(node=NODE, by="ann", reason="new disks"))
    return world


def run(world: World, rounds: int = 60) -> list[DrainEnded]:
    """Everyone does what is due; returns the ends of drains."""
    ended = []
    for _ in range(rounds):
        for event in world.decide():
            if isinstance(event, DrainEnded):
                ended.append(event)
            if isinstance(event, FieldsDesired) and event.resource == "nodes":
                cordon(world, unschedulable=True)
        world.gateway()
        gone = world.kubelets_end_pods()
        for (resource, name), body in list(world.objects.items()):
            if resource == RESERVATIONS and not body.get("status"):
                world.schedule(name)
        for key in gone:
            held = next(
                name
                for (resource, name), body in world.objects.items()
                if resource == RESERVATIONS and body["status"]["phase"] == "Available"
            )
            world.successor(key, held)
        assert len([pod for pod in world.pods.values() if pod.metadata.deletion_timestamp]) <= 2
        world.pass_time(1)
    return ended


def test_all_pods_that_may_move_leave_the_node_and_the_others_are_reported() -> None:
    world = draining()
    (ended,) = run(world)
    assert (ended.moved, ended.remaining) == (3, {"default/agent": "a DaemonSet owns it"})
    assert [key for key, pod in world.pods.items() if pod.spec.node_name == NODE] == ["default/agent"]
    assert world.state.migration.drains == {}
    assert world.state.cluster.nodes[NODE].spec.unschedulable


def test_nothing_moves_before_the_node_is_cordoned_and_at_most_two_at_once() -> None:
    world = draining()
    first = world.decide()
    assert [type(event) for event in first] == [FieldsDesired]
    assert world.decide() == []
    cordon(world, unschedulable=True)
    for _ in range(4):
        world.decide()
        world.gateway()
    jobs = [read_job(body) for (resource, _), body in world.objects.items() if resource == MIGRATION_JOBS]
    assert len(jobs) == 2  # maxMigratingPerNode
    assert {job.annotations["koordinator.sh/evict-reason"] for job in jobs} == {"drain of node n0 by ann: new disks"}
    waiting = status_of(world.state, NODE, "", world.now_ns)
    assert waiting.pods == ()  # without a configuration nothing is planned


def test_a_job_that_waits_since_pods_of_its_workload_were_evicted_lately_has_that_as_reason() -> None:
    """`koord drain --watch` showed for 150 s that a job moves the pod, and not why nothing happened."""
    world = draining(pods=2)
    given = {"workload": {"duration": "300s", "maxMigrating": 1}}
    world.args = world.args._replace(object_limiters=migration_args(objectLimiters=given).object_limiters)
    assert run(world, rounds=20) == []
    facts = effective_facts(world.state)
    limits = RateLimits(world.state.migration, facts, world.args, world.now_ns)
    _, second = drain_plan(world.state.migration, facts, world.args, limits, NODE)
    assert second.step is DrainStep.MOVES
    reason, _, until = second.reason.rpartition(", until ")
    assert reason.endswith(" moves it, and waits: at most 1 eviction of its workload in 300 s")
    free_ns = instant_ns(until)
    assert world.now_ns < free_ns <= world.now_ns + 300 * SECOND
    [(_, pod)] = [item for item in world.pods.items() if item[1].spec.node_name == NODE and "web" in item[0]]
    for before_ns, waits in ((SECOND, True), (0, False)):
        at_the_instant = RateLimits(world.state.migration, facts, world.args, free_ns - before_ns)
        assert bool(at_the_instant.object_wait(pod)) is waits
    world.pass_time(300)
    assert [each.moved for each in run(world)] == [2]


def test_a_restart_goes_on_with_a_drain() -> None:
    world = draining()
    run(world, 4)
    world.restart()
    (ended,) = run(world)
    assert ended.moved == 3


def test_a_drain_outlasts_the_events_that_began_it() -> None:
    world = draining(4, defaultJobTTL="30s")
    run(world, 7)
    before = world.state.migration
    assert before.moved(NODE) > 0
    assert before.drain_jobs
    for _ in range(12):  # the jobs that are left find no place
        world.decide()
        world.gateway()
        world.pass_time(10)
    assert any(before.failed_drain_jobs(pod.metadata.uid) for pod in world.pods.values())
    log = KeptLog()
    for record in world.order:
        log.append(record.context, record)
    log.retain(OWN, log.heads[OWN], CARRY_FORWARD, world.state)
    late = log.fold(DeschedulerState(), FOLDED, Random(1)).migration
    assert (late.drains, late.drain_jobs, late.drain_ends) == (before.drains, before.drain_jobs, before.drain_ends)


def test_what_the_descheduler_folds_of_its_own_is_what_it_reads_from_the_log() -> None:
    """Retention keeps a desired state where the State has its value; tuples in place of lists make it another one."""
    world = draining()
    run(world, 7)
    for record in world.logs[OWN]:
        assert msgspec.json.decode(msgspec.json.encode(record.event), type=type(record.event)) == record.event


def test_a_drain_that_has_ended_leaves_nothing_to_carry_forward() -> None:
    world = draining()
    run(world)
    log = KeptLog()
    for record in world.order:
        log.append(record.context, record)
    log.retain(OWN, log.heads[OWN], CARRY_FORWARD, world.state)
    kinds = {type(record.event) for record in log.carried(OWN)}
    assert kinds.isdisjoint((DrainRequested, MigrationEnded))
    late = log.fold(DeschedulerState(), FOLDED, Random(1)).migration
    assert (late.drains, late.drain_jobs, late.drain_ends) == ({}, {}, {})


def test_a_drain_that_begins_again_makes_jobs_of_its_own() -> None:
    world = draining(1)
    run(world, 3)
    first = [name for resource, name in world.objects if resource == MIGRATION_JOBS]
    world.append(OWN, DrainEnded(node=NODE, moved=0, remaining={}, by="ann"))
    assert world.state.migration.drain_jobs == {}
    for name in first:
        world.put(MIGRATION_JOBS, name, world.objects[MIGRATION_JOBS, name] | {"status": {"phase": "Aborted"}})
    world.append(OWN, DrainRequested(node=NODE, by="ann"))
    run(world, 3)
    assert {name for resource, name in world.objects if resource == MIGRATION_JOBS} > set(first)


def test_a_pod_stays_after_three_jobs_failed() -> None:
    world = draining(1, defaultJobTTL="30s")
    ends = []
    for _ in range(200):
        for event in world.decide():
            if isinstance(event, DrainEnded):
                ends.append(event)
            if isinstance(event, FieldsDesired) and event.resource == "nodes":
                cordon(world, unschedulable=True)
            assert not isinstance(event, EvictionRequested)  # no place was found
        world.gateway()
        world.pass_time(10)
    (ended,) = ends
    assert "3 jobs failed, the last one: Abort job caused by timeout" in ended.remaining["default/web-0"]


def test_a_drain_of_a_node_that_leaves_the_cluster_ends() -> None:
    world = draining()
    del world.state.cluster.nodes[NODE]
    assert [type(event) for event in world.decide()] == [DrainEnded]


def test_requests_that_cannot_be_met_say_why() -> None:
    world = draining()
    assert fault_of(world.state, DrainCommand("start", "nowhere")) == "there is no node 'nowhere'"
    assert fault_of(world.state, DrainCommand("start", "n00")).endswith("'n00'; perhaps 'n0' is meant")
    assert "MigrationController" in fault_of(world.state, DrainCommand("start", NODE))
    there = DrainStatus(NODE, draining=True)
    assert event_of(world.state, DrainCommand("start", NODE), there) is None  # it goes on already
    found = event_of(world.state, DrainCommand("cancel", NODE, "bob"), there)
    assert isinstance(found, DrainEnded)
    assert found.by == "bob"


def test_the_response_to_a_cancellation_has_the_pods_that_moved() -> None:
    world = draining()
    configure(world)
    while not (moved := world.state.migration.moved(NODE)):
        run(world, rounds=1)
    requests = DrainRequests(runtime(world))
    answers: list[DrainStatus] = []
    asyncio.run(answered(requests, DrainCommand("cancel", NODE, "ann"), answers))
    (answer,) = answers
    assert (answer.draining, answer.moved) == (False, moved)
    start = f"the drain of node {NODE} has ended early: {moved} pod{'s' * (moved > 1)} moved"
    assert headline(answer, "cancel").startswith(start)
    assert headline(answer, "cancel").endswith("the node stays cordoned")


def configure(world: World) -> None:
    text = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\nprofiles: [{name: p}]\n"
    world.append(OWN, ConfigApplied(source="a file", digest="ab" * 32, text=text))


def request(world: World, command: DrainCommand) -> DrainStatus:
    answers: list[DrainStatus] = []
    asyncio.run(answered(DrainRequests(runtime(world)), command, answers))
    return answers[0]


def test_a_cancellation_records_the_pods_that_move_and_those_that_stay_with_the_reason() -> None:
    world = draining()
    configure(world)
    cordon(world, unschedulable=True)
    for _ in range(4):
        world.decide()
        world.gateway()
    answer = request(world, DrainCommand("cancel", NODE, "ann"))
    ended = world.logs[OWN][-1].event
    assert isinstance(ended, DrainEnded)
    assert ended.moving == ("default/web-0", "default/web-1")
    assert list(ended.remaining) == ["default/agent", "default/web-2"]
    assert all(ended.remaining.values())
    assert [each.step for each in answer.pods] == ["stays", "moves", "moves", "stays"]
    assert "0 pods moved; jobs that began go on for 2 pods; the node stays cordoned" in headline(answer, "cancel")


def test_a_cancellation_withdraws_a_cordon_that_was_not_written_and_leaves_one_of_an_operator() -> None:
    """The gateway wrote the cordon of a cancelled drain as soon as its effects went on."""
    world = draining()
    configure(world)
    assert [type(event) for event in world.decide()] == [FieldsDesired]
    answer = request(world, DrainCommand("cancel", NODE, "ann"))
    assert not answer.cordoned
    ended, withdrawn = (record.event for record in world.logs[OWN][-2:])
    assert isinstance(ended, DrainEnded)
    assert ended.not_cordoned
    assert isinstance(withdrawn, FieldsDesired)
    assert (withdrawn.resource, withdrawn.name, withdrawn.fields, withdrawn.patch) == ("nodes", NODE, CORDON, {})
    assert refusal(OWN, DECLARED[OWN], withdrawn) == ""
    world.restart()
    assert world.decide() == []
    request(world, DrainCommand("start", NODE, "ann"))
    [again] = world.decide()
    assert isinstance(again, FieldsDesired)
    assert again.patch == {"spec": {"unschedulable": True}}
    cordon(world, unschedulable=True)
    length = len(world.logs[OWN])
    assert request(world, DrainCommand("cancel", NODE, "ann")).cordoned
    assert [type(record.event) for record in world.logs[OWN][length:]] == [DrainEnded]


def test_a_drain_begins_no_more_where_the_node_is_cordoned_and_nothing_moves() -> None:
    world = draining(1)
    configure(world)
    (first,) = run(world)
    length = len(world.logs[OWN])
    answer = request(world, DrainCommand("start", NODE, "ann"))
    assert len(world.logs[OWN]) == length
    assert (answer.draining, answer.cordoned) == (False, True)
    assert headline(answer, "start").startswith(f"no drain of node {NODE} begins: it is cordoned already, and nothing")
    requested = DrainRequested(node=NODE, by="ann", reason="new disks")
    log = FromLog(LastDrain(requested, first, world.now_ns, "descheduling/9"))
    outcome, advice = how_it_ended(NODE, log)
    assert outcome.startswith("the last drain by ann: new disks, at 2026-")
    assert outcome.endswith(
        "ended by itself, since no pod was left that may move: 1 pod moved; 1 pod stayed; "
        "default/agent stayed: a DaemonSet owns it"
    )
    assert advice == "if the node is still cordoned, `kubectl uncordon n0` gives it back"
    cordon(world, unschedulable=False)
    assert request(world, DrainCommand("start", NODE, "ann")).draining


def test_a_drain_whose_node_was_uncordoned_cordons_it_again_when_it_is_requested_once_more() -> None:
    """The first one waits for the cordon, which it does not restore against the operator's will."""
    world = draining()
    configure(world)
    world.decide()
    for unschedulable in (True, False):
        cordon(world, unschedulable=unschedulable)
        assert not any(isinstance(event, FieldsDesired) and event.resource == "nodes" for event in world.decide())
    assert request(world, DrainCommand("start", NODE, "ann")).draining
    assert [
        event.patch for event in world.decide() if isinstance(event, FieldsDesired) and event.resource == "nodes"
    ] == [{"spec": {"unschedulable": True}}]
    cordon(world, unschedulable=True)
    (ended,) = run(world)
    assert ended.moved == 3


def test_pods_that_nothing_makes_anew_are_counted_as_evicted_and_not_as_moved() -> None:
    world = World(migration_args(evictQPS=100, defaultJobMode="EvictDirectly", evictAllBarePods=True))
    for number in range(2):
        world.put_pod(moved_pod(f"own-{number}", node=NODE))
    cordon(world, unschedulable=True)
    world.append(OWN, DrainRequested(node=NODE, by="ann"))
    for _ in range(30):
        ends = [event for event in world.decide() if isinstance(event, DrainEnded)]
        if ends:
            break
        world.gateway()
        world.kubelets_end_pods()
        world.pass_time(1)
        evicted = world.state.migration.evicted_without_successor(NODE)
    assert [(each.moved, each.evicted, each.remaining) for each in ends] == [(0, 2, {})]
    assert evicted == 2
    found = DrainStatus(NODE, draining=True, evicted=evicted)
    assert "0 pods moved, 2 pods evicted without waiting for a successor so far" in headline(found, "start")


def runtime(world: World) -> Any:
    async def append(drafts: list[Draft], *, now_ns: int) -> None:
        for draft in drafts:
            world.append(OWN, draft.event)

    return SimpleNamespace(state=world.state, now_ns=lambda: world.now_ns, append=append)


async def answered(requests: DrainRequests, command: DrainCommand, answers: list[DrainStatus]) -> None:
    async def respond(data: bytes) -> None:
        answers.append(msgspec.json.decode(data, type=DrainStatus))

    message: Any = SimpleNamespace(data=msgspec.json.encode(command), subject=SUBJECT, respond=respond)
    await requests.receive(message)
    await requests.answer()


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ((), "nothing moves, there is no pod on it"),
        ((DrainedPod("default/agent", "stays", "a DaemonSet owns it"),), "nothing moves, each of its pods stays"),
        ((DrainedPod("default/a", "moves", ""), DrainedPod("default/b", "stays", "")), "1 pod to move, 1 that stays"),
        ((DrainedPod("default/a", "next", ""), DrainedPod("default/b", "waits", "")), "2 pods to move"),
    ],
)
def test_a_drain_is_described_by_what_is_to_come_with_the_name_of_the_node_as_it_is_written(
    pods: tuple[DrainedPod, ...], words: str
) -> None:
    going_on = headline(DrainStatus("node-7", draining=True, moved=1, pods=pods), "start")
    assert going_on.startswith(f"node node-7 is being drained: 1 pod moved so far; {words}")
    assert headline(DrainStatus("node-7", pods=pods), "plan").startswith(
        "node node-7 is not being drained; if it were:"
    )
