"""koord events and koord audit on a real log."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import asyncpg
import pytest
import yaml
from click.testing import CliRunner, Result

from cli.commands.events import show_piece
from cli.main import koord
from shared.events import Cause, Draft
from shared.events.cluster import BindRejected
from shared.events.scheduling import Candidate, ClassEvaluated, CycleDecided, PodOutcome, PodPlaced
from shared.log.database import Database
from shared.log.service_store import ServiceStore
from tests.integration.cli.recorded_log import NOW_NS, Log, append, placed, run


@pytest.fixture
async def log(database: str) -> Log:
    await append(database, "scheduling", [placed("web-1", "n1"), placed("web-2", "n2")])
    refusal = BindRejected(pod="default/web-2", pod_uid="uid-web-2", reason="node n2 is gone")
    await append(database, "cluster", [Draft(refusal, cause=Cause("scheduling", 3))], NOW_NS + 1_000_000)
    return Log(database)


async def test_events_are_a_table_for_people(log: Log) -> None:
    result = await run(log, "events", "--type", "PodPlaced")
    assert result.exit_code == 0, result.stderr
    header, first, second = result.stdout.splitlines()
    assert header.split() == ["AT", "EVENT", "TYPE", "KEY", "CAUSE", "DATA"]
    assert "scheduling/2  PodPlaced  default/web-1" in first
    assert '"node":"n2"' in second


async def test_events_are_one_json_object_a_line_for_programs(log: Log) -> None:
    result = await run(log, "events", "--key", "default/web-2", "-o", "json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(event["context"], event["seq"], event["cause"]) for event in events] == [
        ("scheduling", 3, None),
        ("cluster", 2, "scheduling/3"),
    ]
    assert events[1]["data"]["reason"] == "node n2 is gone"
    assert len(bytes.fromhex(events[1]["digest"])) == 32


async def test_only_the_newest_events_of_all_contexts_together(log: Log) -> None:
    result = await run(log, "events", "--last", "1", "-o", "yaml")
    assert [document["key"] for document in yaml.safe_load_all(result.stdout)] == ["default/web-2"]


async def test_events_of_a_namespace(log: Log, database: str) -> None:
    other = PodPlaced(pod_uid="uid", pod="shop/web-1", node="n1", cycle=2, request={"cpu": 500})
    await append(database, "scheduling", [Draft(other)])
    shown = (await run(log, "events", "-n", "shop", "-o", "json")).stdout.splitlines()
    assert [json.loads(line)["key"] for line in shown] == ["shop/web-1"]
    assert (await run(log, "events", "-n", "shop", "--key", "web-1", "-o", "json")).stdout.splitlines() == shown
    assert (await run(log, "events", "-n", "sho", "-o", "json")).stdout == ""
    refused = await run(log, "events", "-n", "shop", "--key", "default/web-1")
    assert refused.exit_code == 2
    assert "default/web-1 is in namespace default, and -n is shop" in refused.stderr


async def test_the_name_of_an_object_as_an_argument_names_the_option(log: Log) -> None:
    refused = await run(log, "events", "default/web-1")
    assert refused.exit_code == 2
    assert "for the events about an object: --key default/web-1" in refused.stderr


async def test_since_takes_an_age_or_an_instant_and_rejects_anything_else(log: Log) -> None:
    assert len((await run(log, "events", "--since", "5m", "-o", "json")).stdout.splitlines()) == 5
    assert (await run(log, "events", "--since", "2199-01-01T00:00:00Z", "-o", "json")).stdout == ""
    refused = await run(log, "events", "--since", "yesterday")
    assert (refused.exit_code, "10m" in refused.stderr) == (2, True)


async def test_until_takes_what_the_table_prints_with_its_zone_or_another(log: Log) -> None:
    rows = [line.split() for line in (await run(log, "events")).stdout.splitlines()[1:]]
    last_at = rows[-1][0]
    assert last_at.endswith("Z")
    in_india = datetime.fromisoformat(last_at).astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert rows[-1][1] == "cluster/2"
    for until in (last_at, in_india.isoformat()):
        shown = (await run(log, "events", "--until", until, "--last", "0")).stdout.splitlines()[1:]
        assert [line.split()[1] for line in shown] == [row[1] for row in rows]
    # The observation of the refusal is a millisecond after everything else.
    before = (datetime.fromisoformat(last_at) - timedelta(milliseconds=1)).isoformat()
    shown = (await run(log, "events", "--until", before, "--key", "default/web-2")).stdout.splitlines()[1:]
    assert [line.split()[1] for line in shown] == ["scheduling/3"]
    assert (await run(log, "events", "--until", "2000-01-01", "-o", "json")).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--until", "1h", "--follow"), "--follow has no end"),
        (("--until", "2h", "--since", "1h"), "is later than --until"),
        (("--until", "9999-12-31"), "from 1970 to 9000"),
        (("--until", "noon"), "neither an age such as 10m"),
    ],
)
async def test_an_end_that_makes_no_sense_is_wrong_usage(log: Log, arguments: tuple[str, ...], error: str) -> None:
    result = await run(log, "events", *arguments)
    assert (result.exit_code, error in result.stderr) == (2, True), result.stderr


async def test_data_are_cut_on_a_terminal_alone_and_there_at_its_width(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "node n2 is gone " * 40
    refusal = BindRejected(pod="default/web-2", pod_uid="uid-web-2", reason=reason)
    await append(log.url, "cluster", [Draft(refusal)], NOW_NS + 2_000_000)
    assert reason in (await run(log, "events", "--type", "BindRejected")).stdout
    row = ("2026-01-01T00:00:00.000Z", "cluster/4", "BindRejected", "default/web-2", "", reason)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_piece([row], "table", header=False)
    [line] = capsys.readouterr().out.splitlines()
    assert (len(line.rstrip()) <= 140, line.rstrip().endswith("…")) == (True, True)
    show_piece([row], "wide", header=False)
    assert capsys.readouterr().out.count("gone") == 40


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--log", "nosuch"), "there is no log 'nosuch'; there are audit, cluster, "),
        (("--type", "PodPlacd"), "there is no event type 'PodPlacd'; did you mean PodPlaced"),
        (("--type", "zzz"), "there is no event type 'zzz'; docs/asyncapi.json lists all"),
        (("--key", "none"), "is about 'none'; give NAMESPACE/NAME, or a NAME"),
        (("--key", "default/none"), "is about 'default/none'; give NAMESPACE/NAME, or a NAME"),
    ],
)
async def test_a_filter_that_nothing_can_pass_is_an_error(log: Log, arguments: tuple[str, ...], error: str) -> None:
    result = await run(log, "events", *arguments)
    assert result.exit_code == 1
    assert error in result.stderr


async def test_a_node_that_the_log_does_not_have_is_named(log: Log) -> None:
    result = await run(log, "explain", "node", "n9")
    assert (result.exit_code, result.stderr) == (
        1,
        "koord: there is no node 'n9'; `koord get nodes` shows those there are\n",
    )


async def test_follow_shows_new_events_until_ctrl_c(log: Log) -> None:
    command = [sys.executable, "-m", "cli", "events", "--follow", "--type", "PodPlaced", "-o", "json"]
    env = {**os.environ, "KOORD_POSTGRES": log.url, "KOORD_NATS": "nats://127.0.0.1:1"}
    follower = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    assert follower.stdout
    lines = [await asyncio.to_thread(follower.stdout.readline) for _ in range(2)]
    await append(log.url, "scheduling", [placed("web-3", "n3")])
    lines.append(await asyncio.to_thread(follower.stdout.readline))
    follower.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(follower.wait, 10) == 130
    follower.stdout.close()
    assert [json.loads(line)["key"] for line in lines] == ["default/web-1", "default/web-2", "default/web-3"]


async def test_a_log_as_it_was_written_verifies(log: Log) -> None:
    result = await run(log, "audit", "verify", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert {one["context"]: (one["ok"], one["checked"]) for one in json.loads(result.stdout) if one["checked"]} == {
        "cluster": (True, 2),
        "scheduling": (True, 3),
    }


async def test_reading_commands_use_the_servers_of_a_context(log: Log, tmp_path: Path) -> None:
    env = {"KOORD_CONTEXTS": str(tmp_path / "contexts.json"), "KOORD_POSTGRES": None, "KOORD_NATS": None}

    def koord_run(*words: str) -> Result:
        return CliRunner().invoke(koord, words, env=env)

    for words in (
        ("context", "set", "here", "--postgres", log.url),
        ("context", "set", "gone", "--postgres", "postgresql://koord@127.0.0.1:1/koord", "--use"),
        ("events", "--type", "PodPlaced", "--context", "here"),
        ("why", "pod", "web-1", "--context", "here"),
    ):
        result = await asyncio.to_thread(koord_run, *words)
        assert result.exit_code == 0, result.stderr
    refused = await asyncio.to_thread(koord_run, "events")
    assert (refused.exit_code, "127.0.0.1:1" in refused.stderr) == (1, True), refused.stderr


async def test_an_altered_event_is_named_and_fails_the_command(log: Log) -> None:
    connection = await asyncpg.connect(log.url)
    await connection.execute("update events set key = 'default/other' where context = 'scheduling' and seq = 2")
    await connection.close()
    result = await run(log, "audit", "verify")
    assert result.exit_code == 1
    assert "scheduling/2" in result.stderr
    assert (await run(log, "audit", "verify", "--log", "cluster")).exit_code == 0
    assert (await run(log, "audit", "verify", "--log", "none")).exit_code == 1


def test_a_missing_database_is_reported_in_one_line() -> None:
    result = Log("postgresql://koord@127.0.0.1:1/koord").koord("events")
    assert result.exit_code == 1
    assert result.stderr.startswith("koord: ")
    assert len(result.stderr.splitlines()) == 1


async def test_why_explains_a_pod_from_its_events_and_their_cycle(log: Log) -> None:
    cycle = CycleDecided(
        cycle=1,
        pods=(PodOutcome("uid-web-1", 0, "n1"), PodOutcome("uid-web-2", 0, "n2")),
        classes=(ClassEvaluated(nodes=3, feasible=2, best=(Candidate("n1", 90, {"LoadAwareScheduling": 90}),)),),
    )
    await append(log.url, "scheduling", [Draft(cycle)], NOW_NS + 2_000_000)
    reported = await run(log, "why", "pod", "web-2")
    assert reported.exit_code == 0, reported.stderr
    assert "default/web-2 (uid-web-2): the binding failed and it is tried again: node n2 is gone" in reported.stdout
    assert "2 of 3 nodes passed every filter" in reported.stdout
    found = json.loads((await run(log, "why", "pod", "default/web-1", "-o", "json")).stdout)
    assert (found["status"], found["node"], found["evaluation"]["best"][0]["plugin_scores"]) == (
        "placed",
        "n1",
        {"LoadAwareScheduling": 90},
    )


async def test_why_reports_that_the_log_has_no_such_pod(log: Log) -> None:
    unknown = await run(log, "why", "pod", "default/nobody")
    assert (unknown.exit_code, "default/nobody" in unknown.stderr) == (1, True)


async def test_a_long_log_comes_in_the_order_of_its_appends_and_as_one_table(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.commands.events.TABLE_ROWS", 2)
    lines = (await run(log, "events", "--last", "0")).stdout.splitlines()
    events = [line.split()[1] for line in lines]
    assert events == ["EVENT", "scheduling/1", "scheduling/2", "scheduling/3", "cluster/1", "cluster/2"]


async def test_a_parked_event_is_shown_and_passed_over_with_a_reason(log: Log) -> None:
    database = Database(log.url)
    await ServiceStore(database, "scheduler").park("cluster", 2, "ValueError: no such node")
    await database.close()
    assert "cluster/2  ValueError: no such node" in (await run(log, "events", "parked")).stdout
    for service, event in (("scheduler", "cluster/99"), ("scheduler", "cluster/1"), ("gateway", "cluster/2")):
        refused = await run(log, "events", "skip", service, event, "--reason", "x")
        assert (refused.exit_code, f"{service} has not parked {event}" in refused.stderr) == (1, True)
    assert (await run(log, "events", "skip", "scheduler", "cluster", "--reason", "x")).exit_code == 2
    skipped = await run(log, "events", "skip", "scheduler", "cluster/2", "--reason", "the node is gone", "--by", "ada")
    assert (skipped.exit_code, skipped.stdout) == (0, "scheduler passes over cluster/2 from its next start on.\n")
    found = json.loads((await run(log, "events", "parked", "-o", "json")).stdout)
    assert found["parked"] == []
    assert [(one["service"], one["seq"], one["reason"], one["by"]) for one in found["skipped"]] == [
        ("scheduler", 2, "the node is gone", "ada")
    ]


async def test_a_follower_that_is_gone_is_forgotten(log: Log) -> None:
    database = Database(log.url)
    await ServiceStore(database, "scheduler").register({"cluster": 2, "scheduling": 3}, {})
    await database.close()
    assert "scheduler  cluster/2 scheduling/3" in (await run(log, "followers", "list")).stdout
    assert (await run(log, "followers", "forget", "scheduler")).exit_code == 0
    again = await run(log, "followers", "forget", "scheduler")
    assert (again.exit_code, "koord followers list" in again.stderr) == (1, True)


async def test_a_bare_name_is_one_of_the_default_namespace_and_nothing_found_has_no_titles(log: Log) -> None:
    bare = await run(log, "events", "--key", "web-2", "-o", "json")
    assert bare.stdout == (await run(log, "events", "--key", "default/web-2", "-o", "json")).stdout != ""
    nothing = await run(log, "events", "--until", "2000-01-01")
    assert (nothing.stdout, nothing.stderr.splitlines()[-1], nothing.exit_code) == ("", "No events found.", 0)
    of_nope = await run(log, "events", "-n", "nope")
    assert of_nope.stderr.splitlines()[-1] == "No events found about objects of namespace nope."
