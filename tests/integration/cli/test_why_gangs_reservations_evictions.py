"""`koord why gang`, `reservation`, `eviction`, and a name without a kind, on a real log."""

import asyncio
import json
import time
from datetime import datetime

import pytest
from click.testing import Result

from shared.domain import gang
from shared.domain.operating_mode_pod import CURRENT_OWNER
from shared.events import Cause, Draft
from shared.events.cluster import EvictionPaused, EvictionsHeld, ObjectObserved
from shared.events.descheduling import EvictionCaseClosed, EvictionCaseOpened, Victim
from shared.events.intents import EvictionRequested
from shared.events.migration import MigrationArbitrated, MigrationEnded, MigrationEvictionDecided
from shared.events.scheduling import CycleDecided, GangPlaced, UnitStartPlanned
from shared.kube.instants import SECOND, instant_text
from shared.kube.pod import Pod
from shared.kube.resource_names import MIGRATION_JOBS, POD_GROUPS
from tests.integration.cli.recorded_log import Log, append, run
from tests.integration.cli.recorded_world import begin, write
from tests.support.reservations import available, observe, reservation
from tests.support.scheduling_world import START_NS, World, node, pod
from tests.unit.scheduler.test_operating_mode_pods import operating, web

REASON = "preempted by d/boss of priority 9000 on node n"
SPENT = "namespace d: 1 evictions in 300 s"


def _member(of: str, name: str, cpu: str) -> Pod:
    return pod(name, cpu=cpu, memory=None, annotations={gang.NAME: of, gang.MINIMUM: "3"})


def _world(largest: str = "8") -> World:
    """A gang that lacks a pod, one that a member fails, Reservations with and without a node, and an eviction."""
    world = World()
    world.now_ns = time.time_ns() - 20 * SECOND
    begin(world, "cluster", "scheduling")
    world.add_node(node("n", cpu="8"))
    available(world, reservation("web", "2"), "n", allocatable={"cpu": "2"})
    observe(world, reservation("huge", "100"))
    body = {"metadata": {"name": "train", "namespace": "d"}, "spec": {"minMember": 3}}
    world.observe(ObjectObserved(resource=POD_GROUPS, name="d/train", uid="train", object=body))
    for name, cpu in (("a", "1"), ("b", "1"), ("c", largest)):
        world.add_pod(pod(f"train-{name}", cpu=cpu, memory=None, labels={gang.POD_GROUP_LABEL: "train"}))
    world.add_pod(_member("short", "short-a", "1"))
    world.add_pod(_member("short", "short-b", "1"))
    world.add_pod(pod("owner", cpu="90", labels={"app": "web"}))
    world.add_pod(pod("victim", cpu="1", on="n", phase="Running"))
    world.read()
    world.cycle()
    [request] = world.record(
        [Draft(EvictionRequested(pod_uid="victim", pod="d/victim", reason=REASON))], world.now_ns, {"cluster": 1}, ""
    )
    world.observe(EvictionPaused(pod="d/victim", pod_uid="victim", reason=SPENT), Cause("scheduling", request.seq))
    world.observe(EvictionsHeld(by="breaker", reason="500 evictions wait for budget"))
    return world


@pytest.fixture
async def log(database: str) -> Log:
    await write(await asyncio.to_thread(_world), database)
    return Log(database)


async def test_a_gang_names_the_member_and_the_plugin_that_failed_it_and_its_place(log: Log) -> None:
    result = await run(log, "why", "gang", "train", "-n", "d")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(
        "Gang d/train: it needs 3 more pods with a node; d/train-c has none: "
        "NodeResourcesFit: Insufficient cpu (1 of 1 nodes)\n"
        "  declared by PodGroup: 3 of 3 pods together, Strict, once-satisfied\n"
    )
    little = "too little history: the log has the wait of no gang, and an estimate needs 20"
    assert f"  estimated start: {little}\n" in result.stdout
    found = json.loads((await run(log, "why", "gang", "d/train", "-o", "json")).stdout)
    assert (found["estimated_start"]["text"], found["estimated_start"]["latest"]) == (little, "")
    assert (found["state"], found["failed_member"], found["place"], found["attempts"]) == ("waiting", "d/train-c", 2, 1)
    assert (found["exists"], found["pending"], found["needed"]) == (3, 3, 3)
    assert 'member Pod "d/train-c"' in found["condition"]
    assert "alreadyWaitForBound: 2" in found["condition"]
    assert found["nearest_domain"] == ""
    members = {each["name"]: each for each in found["members"]}
    assert [each["plugin"] for each in members["d/train-c"]["refused_by"]] == ["NodeResourcesFit"]
    assert "d/train-c, which is placed together with it" in members["d/train-a"]["waits_for"]


async def test_the_start_of_a_waiting_gang_is_estimated_from_the_waits_of_similar_gangs(database: str) -> None:
    def world() -> World:
        world = _world()
        total = {"cpu": 10_000}
        waits = [
            GangPlaced(gang=f"d/old-{number}", cycle=1, waited_ns=(100 + number) * 60 * SECOND, pods=3, request=total,
                       priority="koord-prod", qos="LS")
            for number in range(20)
        ]  # fmt: skip
        world.record([Draft(each) for each in waits], world.now_ns, {"cluster": 1}, "")
        return world

    await write(await asyncio.to_thread(world), database)
    found = json.loads((await run(Log(database), "why", "gang", "d/train", "-o", "json")).stdout)["estimated_start"]
    assert (found["similar"], found["alike"]) == (20, "quota, priority class, QoS, size and request")
    earliest, latest = (datetime.fromisoformat(found[end]).timestamp() for end in ("earliest", "latest"))
    begun = time.time() - found["waited_s"]
    assert abs(earliest - begun - 101 * 60) < 5
    assert abs(latest - begun - 118 * 60) < 5
    shown = (await run(Log(database), "why", "gang", "d/train")).stdout
    assert "(in 1 h 40 m to 1 h 57 m), by the waits of 20 gangs with similar quota, priority class, QoS" in shown
    described = (await run(Log(database), "describe", "gang", "d/train")).stdout
    assert "Start:         between " in described
    rows = json.loads((await run(Log(database), "pending", "-A", "-o", "json")).stdout)["items"]
    starts = {each["name"]: each["estimated_start"] for each in rows}
    assert abs(datetime.fromisoformat(starts["train-a"]["latest"]).timestamp() - latest) < 5
    assert (starts["short-a"], starts["owner"]) == (None, None)
    _, row = (await run(Log(database), "pending", "train-c", "-n", "d")).stdout.splitlines()
    assert f"(1 of 1 nodes); estimated start {starts['train-c']['earliest'][:14]}" in row


async def test_a_gang_with_a_pod_larger_than_every_node_names_it_and_has_no_estimated_start(database: str) -> None:
    await write(await asyncio.to_thread(_world, "50"), database)
    shown = (await run(Log(database), "why", "gang", "train", "-n", "d")).stdout
    words = "d/train-c: it is larger than every node: it requests cpu 50, and the largest node has 8"
    assert f"\n  check: {words}\n" in shown
    assert "estimated start" not in shown
    assert "    do: " not in shown
    assert f"Check:         {words}\n" in (await run(Log(database), "describe", "gang", "d/train")).stdout
    rows = json.loads((await run(Log(database), "pending", "-A", "-o", "json")).stdout)["items"]
    assert {each["name"]: each["estimated_start"] for each in rows}["train-a"] is None


async def test_a_gang_with_a_planned_start_names_the_pods_and_nodes_that_it_waits_for(database: str) -> None:
    def world() -> World:
        world = _world()
        start = UnitStartPlanned(
            unit="d/train", scheduler="koord-scheduler", plugin="Coscheduling", cycle=1,
            nodes={"train-a": "n", "train-b": "n", "train-c": "m"}, waits_for=("victim",),
            starts_ns=START_NS, reason="Refused",
        )  # fmt: skip
        world.record([Draft(start)], world.now_ns, {"cluster": 1}, "")
        return world

    await write(await asyncio.to_thread(world), database)
    words = f"once d/victim has ended, by {instant_text(START_NS)}, on m, n"
    assert f"  planned start: {words}\n" in (await run(Log(database), "why", "gang", "d/train")).stdout
    found = json.loads((await run(Log(database), "why", "gang", "d/train", "-o", "json")).stdout)["planned_start"]
    assert (found["text"], found["nodes"], found["waits_for"]) == (words, {"m": 1, "n": 2}, ["d/victim"])


async def test_a_gang_that_lacks_pods_names_their_number_and_an_unknown_one_lists_the_known(log: Log) -> None:
    short = (await run(log, "why", "pg", "d/short")).stdout
    assert "it is not tried: gang d/short has 2 of 3 pods" in short
    assert f"\n    do: create 1 more pod of it, or lower annotation {gang.MINIMUM} of its pods\n" in short
    absent = await run(log, "why", "gang", "d/trian")
    assert (absent.exit_code, absent.stderr) == (
        1,
        "koord: there is no gang 'd/trian'; perhaps 'd/train' is meant; known: d/short, d/train\n",
    )


async def test_a_plan_for_a_gang_that_lacks_pods_names_what_it_lacks(log: Log) -> None:
    planned = await run(log, "defrag", "--for", "short", "-n", "d", "--dry-run")
    assert planned.exit_code == 1
    assert planned.stderr == (
        "koord: gang d/short is incomplete: gang d/short has 2 of 3 pods; `koord why gang d/short` has its pods\n"
    )


async def test_an_unknown_pod_is_answered_with_a_pod_and_not_with_a_reservation(log: Log) -> None:
    absent = await run(log, "describe", "pod", "web")
    assert absent.exit_code == 1
    assert "the log has no event about pod default/web; `koord get pods -A`" in absent.stderr


async def test_a_pod_of_an_incomplete_or_undeclared_gang_names_the_gang(database: str) -> None:
    """The headline was "it waits for scheduler koord-scheduler", as if that were down."""

    def world() -> World:
        world = _world()
        world.add_pod(pod("stray", cpu="1", labels={gang.POD_GROUP_LABEL: "trian"}))
        world.add_pod(pod("next", cpu="1"))
        world.drop_pod("train-b")
        return world

    await write(await asyncio.to_thread(world), database)
    log = Log(database)

    async def headline(name: str) -> str:
        return (await run(log, "why", "pod", f"d/{name}")).stdout.splitlines()[0].partition("): ")[2]

    assert await headline("short-a") == "it waits for pods of its gang: gang d/short has 2 of 3 pods"
    assert (await headline("stray")).startswith(
        "gang d/trian has no PodGroup, and its pods give no readable minimum; create it"
    )
    assert await headline("next") == "it is tried in one of the next cycles"
    tried = await headline("train-a")
    assert tried.startswith("cycle 1 found no node: ")
    assert tried.endswith("; it waits for pods of its gang: gang d/train has 2 of 3 pods")
    described = (await run(log, "describe", "pod", "d/short-a")).stdout
    assert "waiting: it waits for pods of its gang: gang d/short has 2 of 3 pods" in described


async def test_settings_of_a_gang_that_cannot_be_read_are_named_with_what_is_in_force_instead(database: str) -> None:
    def world() -> World:
        world = _world()
        annotations = {gang.MODE: "Foo", gang.GROUPS: "not json"}
        body = {"metadata": {"name": "bad", "namespace": "d", "annotations": annotations}, "spec": {"minMember": 2}}
        world.observe(ObjectObserved(resource=POD_GROUPS, name="d/bad", uid="bad", object=body))
        world.add_pod(pod("bad-a", cpu="1", labels={gang.POD_GROUP_LABEL: "bad"}))
        return world

    await write(await asyncio.to_thread(world), database)
    faults = [
        f"annotation {gang.MODE} is 'Foo', which is none of Strict, NonStrict: the gang is Strict",
        (
            f"annotation {gang.GROUPS} is 'not json': the gang is placed without others; write a list such as "
            '["namespace/name", "namespace/other"]'
        ),
    ]
    lines = (await run(Log(database), "why", "gang", "d/bad")).stdout.splitlines()
    assert [line.removeprefix("  ignored: ") for line in lines if line.startswith("  ignored: ")] == faults
    assert json.loads((await run(Log(database), "why", "gang", "d/bad", "-o", "json")).stdout)["ignored"] == faults
    described = (await run(Log(database), "describe", "gang", "d/bad")).stdout
    assert all(fault in described for fault in faults)


async def test_a_reservation_names_what_keeps_it_from_every_node_or_where_it_is(log: Log) -> None:
    huge = await run(log, "why", "reservation", "huge")
    assert huge.stdout.splitlines()[0] == (
        "Reservation huge (Pending): it waits: NodeResourcesFit: Insufficient cpu (1 of 1 nodes)"
    )
    assert "is to hold cpu 100 for one pod, policy Default" in huge.stdout
    assert "place 1 in the queue; tried once" in huge.stdout
    assert "found no node: 0/1 nodes are available: 1 Insufficient cpu." in huge.stdout
    web = json.loads((await run(log, "why", "reservation", "web", "-o", "json")).stdout)
    assert (web["phase"], web["node"], web["holds"], web["waiting"]) == ("Available", "n", {"cpu": 2000}, ["d/owner"])
    absent = await run(log, "why", "reservation", "wbe")
    assert "there is no Reservation 'wbe'; perhaps 'web' is meant; known: huge, web" in absent.stderr


async def test_a_reservation_that_ended_has_its_end_and_one_that_waits_no_expiry(database: str) -> None:
    world = World()
    world.now_ns = time.time_ns() - 20 * SECOND
    begin(world, "cluster", "scheduling")
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Succeeded",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    ended = reservation("ended", "1", ttl="1m")
    ended["status"] = {
        "phase": "Succeeded", "nodeName": "n", "conditions": [{**condition, "lastProbeTime": "2026-01-01T00:05:00Z"}]
    }  # fmt: skip
    observe(world, ended)
    observe(world, reservation("waits", "100", ttl="1m"))
    await write(world, database)
    found = (await run(Log(database), "why", "reservation", "ended")).stdout.splitlines()[0]
    assert found == "Reservation ended (Succeeded): it has ended: Succeeded at 2026-01-01T00:05:00Z"
    assert "expires" not in (await run(Log(database), "why", "reservation", "waits")).stdout
    listed = json.loads((await run(Log(database), "get", "reservations", "-o", "json")).stdout)["items"]
    assert {each["name"]: bool(each["expires"]) for each in listed} == {"ended": True, "waits": False}


async def test_why_pod_shows_the_newest_cycle_that_tried_a_pod_that_waits(database: str) -> None:
    world = World()
    world.now_ns = time.time_ns() - 900 * SECOND
    begin(world, "cluster", "scheduling")
    world.add_node(node("n", cpu="1"))
    world.add_pod(pod("p", cpu="2"))
    world.read()
    world.cycle()
    world.wait(400)
    world.read()
    (again,) = (each for each in world.cycle() if isinstance(each.event, CycleDecided))
    await write(world, database)
    for command in ("why", "describe"):
        assert f"scheduling/{again.seq}" in (await run(Log(database), command, "pod", "d/p")).stdout


async def test_a_pod_that_is_larger_than_every_node_is_called_so(log: Log) -> None:
    result = await run(log, "why", "pod", "owner", "-n", "d")
    assert "check: it is larger than every node: it requests cpu 90, and the largest node has 8\n" in result.stdout
    planned = await run(log, "defrag", "--for", "owner", "-n", "d", "--dry-run")
    words = "it is larger than every node: it requests cpu 90, and the largest node has 8"
    assert planned.stdout == f"d/owner: no move helps: {words}\n"
    fits = await run(log, "why", "pod", "train-a", "-n", "d")
    assert "larger than every node" not in fits.stdout


async def test_a_misspelt_pod_is_answered_with_the_one_that_is_probably_meant(log: Log) -> None:
    result = await run(log, "why", "pod", "onwer", "-n", "d")
    assert "no event about pod d/onwer; perhaps 'd/owner' is meant" in result.stderr


async def test_a_misspelt_name_to_get_is_answered_with_the_closest(log: Log) -> None:
    assert "perhaps 'd/owner' is meant" in (await run(log, "get", "pod", "onwer")).stderr
    assert "perhaps 'web' is meant" in (await run(log, "get", "reservation", "wep")).stderr


async def test_a_victim_of_an_open_case_whose_job_succeeded_is_moved(database: str) -> None:
    victim = Victim(pod="d/web", pod_uid="web", node="n", reason="hot", job="job-1", destination="m")
    opened = EvictionCaseOpened(case="lownodeload-1", cycle=1, profile="p", plugin="LowNodeLoad", victims=(victim,))
    status = {"phase": "Succeeded", "message": 'Bind Pod "d/web-2" in Reservation "r"'}
    job = ObjectObserved(resource=MIGRATION_JOBS, name="job-1", uid="uid-1", object={"status": status})
    await append(database, "descheduling", [Draft(opened)])
    await append(database, "cluster", [Draft(job)])
    shown = (await run(Log(database), "why", "eviction", "lownodeload-1")).stdout
    assert "\n  victim    d/web leaves n for m (moved)\n" in shown


async def test_a_pod_that_is_being_moved_names_the_case_or_the_job(log: Log) -> None:
    opened = EvictionCaseOpened(
        case="lownodeload-1",
        cycle=1,
        profile="p",
        plugin="LowNodeLoad",
        victims=(Victim(pod="d/victim", pod_uid="victim", node="n", reason="hot", job="job-1"),),
    )
    begun = MigrationArbitrated(job="job-1", job_uid="uid-1", pod="d/victim")
    ended = (
        MigrationEnded(job="job-1", job_uid="uid-1", phase="Failed"),
        EvictionCaseClosed(case="lownodeload-1", outcome="none"),
    )
    decided = MigrationEvictionDecided(
        job="job-1",
        job_uid="uid-1",
        pod="d/victim",
        pod_uid="victim",
        node="n",
        destination="m",
        controller="",
        method="Eviction",
        reason="hot",
    )
    by_case = "eviction case lownodeload-1 moves it: `koord why eviction lownodeload-1`"
    for events, expected in (
        ((opened,), by_case),
        ((begun,), "PodMigrationJob job-1 moves it: a place is sought for it"),
        ((decided,), "PodMigrationJob job-1 moves it to m: its eviction is decided"),
        (ended, "Running"),
    ):
        await append(log.url, "descheduling", [Draft(event) for event in events], time.time_ns())
        summary = (await run(log, "why", "pod", "victim", "-n", "d")).stdout.partition("\n")[0]
        assert summary.endswith(expected)


async def test_an_eviction_names_who_requested_it_why_and_what_it_waits_for(log: Log) -> None:
    result = await run(log, "why", "eviction", "d/victim")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[:2] == [
        f"d/victim (victim): the eviction waits: {SPENT}; the scheduler requested it: {REASON}",
        "  all evictions are held by breaker; `koord evictions release` ends that",
    ]
    found = json.loads((await run(log, "why", "eviction", "victim", "-n", "d", "-o", "json")).stdout)
    assert (found["state"], found["requested_by"], found["held_by"]) == ("waiting", "the scheduler", "breaker")
    absent = await run(log, "why", "eviction", "d/owner")
    assert (absent.exit_code, "no eviction of pod d/owner" in absent.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (("d/owner",), "d/owner (owner): "),
        (("owner", "-n", "d"), "d/owner (owner): "),
        (("d/train",), "Gang d/train: "),
        (("web",), "Reservation web (Available): "),
    ],
)
async def test_a_name_without_a_kind_is_looked_for_among_all(log: Log, words: tuple[str, ...], start: str) -> None:
    result = await run(log, "why", *words)
    assert (result.exit_code, result.stdout[: len(start)]) == (0, start), result.stderr


async def test_a_name_that_nothing_has_is_an_error(log: Log) -> None:
    for name, words in (("nothing", "'nothing' (looked for default/nothing);"), ("nope/x", "'nope/x';")):
        absent = await run(log, "why", name)
        assert (absent.exit_code, f"no pod, gang or Reservation {words}" in absent.stderr) == (1, True), absent.stderr


async def test_a_gang_and_a_reservation_are_described(log: Log) -> None:
    train = await run(log, "describe", "gang", "train", "-n", "d")
    assert train.exit_code == 0, train.stderr
    assert "Pods:          3: 0 bound, 0 placed, 3 pending\n" in train.stdout, train.stdout
    assert "  d/train-c  pending  -     NodeResourcesFit: Insufficient cpu (1 of 1 nodes)\n" in train.stdout
    web = await run(log, "describe", "reservation", "web")
    assert web.exit_code == 0, web.stderr
    assert "Holds:           cpu 2\n" in web.stdout, web.stdout
    assert "Waiting owners:  d/owner\n" in web.stdout


async def test_gangs_reservations_pods_and_nodes_are_listed(log: Log) -> None:
    def lines(result: Result) -> list[list[str]]:
        assert result.exit_code == 0, result.stderr
        return [line.split() for line in result.stdout.splitlines()]

    assert lines(await run(log, "get", "gangs", "-n", "d")) == [
        ["NAME", "STATE", "MINIMUM", "EXISTS", "BOUND", "PLACED", "PENDING"],
        ["short", "incomplete", "3", "2", "0", "0", "2"],
        ["train", "waiting", "3", "3", "0", "0", "3"],
    ]
    _, huge, web = lines(await run(log, "get", "reservations"))
    assert huge[:6] == ["huge", "Pending", "-", "cpu", "100", "-"]
    assert web[:5] == ["web", "Available", "n", "cpu", "2"]
    problems = json.loads((await run(log, "get", "reservations", "-o", "json")).stdout)["items"]
    assert [one["problem"] for one in problems] == ["NodeResourcesFit: Insufficient cpu (1 of 1 nodes)", ""]
    assert (await run(log, "get", "pods", "-n", "d", "-o", "name")).stdout.splitlines()[0] == "pod/d/owner"
    victim = json.loads((await run(log, "get", "pod", "victim", "-n", "d", "-o", "json")).stdout)
    assert (victim["status"], victim["node"], victim["requests"]["cpu"]) == ("bound", "n", 1000)
    assert lines(await run(log, "get", "nodes"))[1][:6] == ["n", "Unknown", "2", "3", "of", "8"]
    absent = await run(log, "get", "gang", "d/nosuch")
    assert absent.stderr == "koord: there is no gang 'd/nosuch'; `koord get gangs -A` shows those there are\n"


async def test_running_pods_in_operating_mode_are_listed_with_the_reservations(database: str) -> None:
    def world() -> World:
        world = _world()
        world.add_pod(operating("warm", "2", on="n"))
        world.add_pod(operating("named", "1", on="n", annotations={CURRENT_OWNER: '{"namespace":"d","name":"o"}'}))
        world.add_pod(operating("starting", "1", on="n", conditions=()))
        world.add_pod(web("user", "2"))
        world.read()
        world.cycles()
        return world

    await write(await asyncio.to_thread(world), database)
    listed = json.loads((await run(Log(database), "get", "reservations", "-o", "json")).stdout)["items"]
    rows = {each["name"]: each for each in listed}
    assert list(rows) == ["huge", "web", "pod/d/named", "pod/d/warm"]
    assert (rows["pod/d/warm"]["node"], rows["pod/d/warm"]["phase"]) == ("n", "Available")
    assert (rows["pod/d/warm"]["holds"], rows["pod/d/warm"]["used_by"]) == ({"cpu": 2000}, ["d/user"])
    assert rows["pod/d/named"]["used_by"] == ["d/o"]
    await _is_accepted_as_listed(Log(database))


async def _is_accepted_as_listed(log: Log) -> None:
    """A pod in operating mode is found by the name that `get` and `get -o name` print."""
    printed = (await run(log, "get", "reservations", "-o", "name")).stdout.split()[-1]
    assert printed == "reservation/pod/d/warm"
    for name in ("pod/d/warm", printed):
        (row,) = (await run(log, "get", "reservations", name, "--no-headers")).stdout.splitlines()
        assert row.startswith("pod/d/warm  Available  n ")
        why = await run(log, "why", "reservation", name)
        assert why.stdout.splitlines()[:3] == [
            "Reservation pod/d/warm (Available): it holds capacity on n, used by one pod",
            "  holds cpu 2 for one pod, policy Aligned",
            "  used by d/user",
        ], why.stderr
        described = await run(log, "describe", "reservation", name)
        assert "Name:            pod/d/warm\n" in described.stdout, described.stderr
        assert "Used:            not recorded\nUsed by:         d/user\n" in described.stdout
    assert (await run(log, "why", printed)).stdout.startswith("Reservation pod/d/warm (Available): ")
    assert (await run(log, "why", "pod", "d/warm")).stdout.startswith("d/warm ")
    absent = await run(log, "why", "reservation", "pod/d/wram")
    assert "there is no Reservation 'pod/d/wram'; perhaps 'pod/d/warm' is meant; known: huge, " in absent.stderr
