"""koord doctor on real servers: each fault that it detects is caused, and it must report the fault and the remedy."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import asyncpg
import msgspec
import pytest
from click.testing import CliRunner

from cli.bus_connection import login_of
from cli.doctor.all_checks import LISTENED_S, examine
from cli.doctor.finding import Finding
from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.embedded.nats import _program
from cli.main import koord
from cli.processes.child_process import Process
from cli.processes.free_ports import free_port
from cli.service_list import contexts
from cli.supervisor.endpoints import Endpoints
from shared.bus import Bus
from shared.bus.server_check import STREAM_S, look
from shared.domain import gang
from shared.errors import KoordError
from shared.events import Cause
from shared.events.cluster import (
    ClusterIdentified,
    DesiredStateApplied,
    DesiredStateRejected,
    IntentRefused,
    MissingPermission,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
)
from shared.events.devices import NodeDevicesRemoved, NodeDevicesReported
from shared.events.log import CarriedForward, ConfigApplied, ConfigRejected, WriterStarted
from shared.events.metrics import NodeReported
from shared.events.quota import QuotaRejected
from shared.events.slo import IgnoredReport, NodeOvercommitted, NodeReportsBelieved, NodeReportsIgnored
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.resource_names import POD_GROUPS, QUOTAS
from shared.log import announcements
from shared.log.database import Database
from shared.log.service_store import ServiceStore
from shared.runtime import health
from shared.runtime.health import Metrics
from shared.runtime.status import Status
from shared.unreachable import Unreachable
from tests.integration.cli.installation import SECOND, Installation
from tests.support.terminal import CTRL_C, Terminal

NOBODY = "nats://127.0.0.1:1"


@pytest.fixture
async def installation(database: str, nats: EmbeddedNats, tmp_path: Path) -> AsyncIterator[Installation]:
    """Starts writers of `cluster` and `scheduling`, with followers that keep up."""
    async with AsyncExitStack() as open_:
        made = Installation(database, nats.url, tmp_path, open_)
        await made.leads("cluster", actor="simulator@1")
        await made.leads("scheduling", actor="scheduler@1", emits=(WriterStarted, ConfigApplied, ConfigRejected))
        await made.append("scheduling", ConfigApplied(source="shipped profile", digest="00", text="kind: Shipped\n"))
        await made.follows("scheduler", {"cluster": 1, "scheduling": 2})
        yield made


def of(found: list[Finding], area: str, *severities: str) -> list[Finding]:
    return [one for one in found if one.area == area and one.severity in (severities or ("error", "warning"))]


def the(found: list[Finding], area: str, *severities: str) -> Finding:
    (one,) = of(found, area, *severities)
    return one


def ill(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.severity in {"error", "warning"}]


async def test_a_system_in_order_has_no_errors_and_exit_code_0(installation: Installation) -> None:
    assert ill(await installation.examine()) == []
    env = {"KOORD_POSTGRES": installation.endpoints.postgres, "KOORD_NATS": installation.endpoints.nats}
    result = await asyncio.to_thread(CliRunner().invoke, koord, ["doctor", "-o", "json"], env=env)
    assert result.exit_code == 0, result.stderr
    assert {"ok"} <= {one["severity"] for one in json.loads(result.stdout)} <= {"ok", "note"}
    shown = await asyncio.to_thread(CliRunner().invoke, koord, ["doctor", "--verbose"], env=env)
    assert "OK services: cluster is led by simulator@1" in shown.stdout


@pytest.mark.parametrize(("bus", "ahead", "is_quick"), [(True, 0, True), (False, 0, False), (True, 1, False)])
async def test_the_beacon_of_a_leader_that_announces_by_its_status_is_not_waited_for(
    installation: Installation, *, bus: bool, ahead: int, is_quick: bool
) -> None:
    """A status of another epoch, or without a bus, is no evidence: nobody announces here, and the doctor says so."""
    epochs = {name: installation.epoch(name) for name in ("cluster", "scheduling")}
    await installation.silence()
    async with AsyncExitStack() as open_:
        addresses = {}
        for context, service in (("cluster", "simulator"), ("scheduling", "scheduler")):
            own = Status(service, "leading", epochs[context] + ahead, 0, 0.0, 0, {}, bus=bus)
            addresses[service] = f"127.0.0.1:{free_port()}"
            pages = await health.serve(addresses[service], lambda own=own: own, Metrics())  # type: ignore[misc]
            open_.push_async_callback(pages.cleanup)
        endpoints = msgspec.structs.replace(installation.endpoints, services=addresses)
        began = time.monotonic()
        found = of(await examine(endpoints, installation.folder), "services", "error")
    assert bool(found) is not is_quick
    assert (time.monotonic() - began < LISTENED_S) is is_quick


@pytest.mark.parametrize(
    "command",
    [["cluster", "status"], ["cluster", "confirm"], ["evictions", "status"], ["evictions", "hold", "--reason", "x"]],
)
async def test_commands_for_the_gateway_end_at_once_on_a_simulated_cluster(
    installation: Installation, command: list[str]
) -> None:
    env = {"KOORD_POSTGRES": installation.endpoints.postgres, "KOORD_NATS": installation.endpoints.nats}
    result = await asyncio.to_thread(CliRunner().invoke, koord, command, env=env)
    assert (result.exit_code, result.output.startswith("koord: the cluster is simulated: it has no gateway")) == (
        1,
        True,
    )


async def test_simulated_nodes_need_no_agents(installation: Installation) -> None:
    node = Node(metadata=Metadata(name="n-1", uid="u"))
    await installation.append("cluster", NodeObserved(node="n-1", object=node))
    assert of(await installation.examine(), "nodes", "note", "error", "warning") == []


async def test_an_extender_that_admits_every_caller_is_a_warning(installation: Installation) -> None:
    opened = ConfigApplied(source="shipped profile", digest="00", text="", settings={"open_ports": "127.0.0.1:10262"})
    await installation.append("scheduling", opened)
    found = the(await installation.examine(), "credentials", "warning")
    assert (
        found.what == "scheduling: whoever reaches 127.0.0.1:10262 may bind and evict pods, for it admits every caller"
    )
    restricted = ConfigApplied(source="shipped profile", digest="00", text="", settings={"open_ports": ""})
    await installation.append("scheduling", restricted)
    assert of(await installation.examine(), "credentials") == []


def test_servers_that_are_away_are_errors_with_a_remedy_and_exit_code_1() -> None:
    env = {"KOORD_POSTGRES": "postgresql://ada:secret@127.0.0.1:1/koord", "KOORD_NATS": NOBODY}
    result = CliRunner().invoke(koord, ["doctor"], env=env)
    assert result.exit_code == 1
    assert "ERROR postgres: Postgres at postgresql://ada:***@127.0.0.1:1/koord cannot be reached" in result.stdout
    assert "do: start it, or correct KOORD_POSTGRES" in result.stdout
    assert "ERROR nats: NATS at nats://127.0.0.1:1 cannot be reached" in result.stdout
    assert result.stderr == "koord: 2 errors found\n"
    assert "secret" not in result.output


def test_on_a_terminal_the_doctor_shows_what_it_waits_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts into its backlog, and never answers
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        env = {"KOORD_POSTGRES": f"postgresql://ada@{place}/koord", "KOORD_NATS": f"nats://{place}"}
        with Terminal(["doctor"], env) as terminal:
            terminal.wait_for(r"\d s: waiting for Postgres, NATS")
            terminal.press(CTRL_C)
            terminal.wait_for_end()


async def test_a_postgres_that_hangs_is_one_finding_with_the_services_that_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.doctor.all_checks.ANSWER_S", 0.3)
    since = 1_800_000_000 * SECOND
    waits = Status(
        "scheduler", "starting", 0, 0, 0.0, 0, {}, bus=True, unreachable=(Unreachable("Postgres at x", since, "-"),)
    )
    address = f"127.0.0.1:{free_port()}"
    pages = await health.serve(address, lambda: waits, Metrics())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        postgres = f"postgresql://ada@127.0.0.1:{listening.getsockname()[1]}/koord"
        began = time.monotonic()
        found = the(await examine(Endpoints(postgres, NOBODY, services={"scheduler": address}), tmp_path), "postgres")
    await pages.cleanup()
    assert time.monotonic() - began < 2
    assert found.what.endswith("no response in time; since 2027-01-15T08:00:00Z scheduler waits for it")
    assert "a process that hangs is to be ended" in found.do


async def test_a_database_that_was_never_migrated(
    postgres: EmbeddedPostgres, nats: EmbeddedNats, tmp_path: Path
) -> None:
    empty = await postgres.create_database("doctor_empty")
    found = await examine(Endpoints(empty, nats.url), tmp_path)
    await postgres.drop_database("doctor_empty")
    assert (the(found, "postgres").severity, the(found, "postgres").do) == ("error", "run `koord migrate`")


async def test_a_database_of_an_older_and_of_a_later_release(installation: Installation) -> None:
    await installation.sql("update alembic_version set version_num = '0001'")
    assert "needs" in the(await installation.examine(), "postgres").what
    await installation.sql("update alembic_version set version_num = '9999'")
    assert "a later one has migrated" in the(await installation.examine(), "postgres").what


async def test_contexts_that_the_database_lacks(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOORD_METRICS_SHARDS", "2")
    assert {"devices-1", "metrics-1", "nodes-1"} <= set(contexts())
    assert "no log for devices-1, metrics-1, nodes-1" in the(await installation.examine(), "postgres").what


async def test_settings_that_lose_events_or_cancel_the_wait_for_the_lock(installation: Installation) -> None:
    name = installation.endpoints.postgres.rpartition("/")[2]
    await installation.sql(f"alter database {name} set synchronous_commit = off")
    await installation.sql(f"alter database {name} set statement_timeout = '5s'")
    await installation.sql(f"alter database {name} set default_transaction_read_only = on")
    found = {one.what.partition(" ")[0]: one for one in of(await installation.examine(), "postgres")}
    assert found["synchronous_commit"].severity == "error"
    assert "standby" in found["statement_timeout"].what
    assert any("takes no writes" in one.what for one in found.values())


async def test_a_role_that_does_not_exist_and_one_without_rights(installation: Installation, tmp_path: Path) -> None:
    place = installation.endpoints.postgres.partition("@")[2]
    stranger = Endpoints(f"postgresql://stranger@{place}", installation.endpoints.nats)
    assert "stranger" in the(await examine(stranger, tmp_path), "credentials").what
    await installation.sql("drop role if exists guest")
    await installation.sql("create role guest login password 'guest'")
    try:
        guest = Endpoints(f"postgresql://guest:guest@{place}", installation.endpoints.nats)
        found = await examine(guest, tmp_path)
        assert "permission denied" in of(found, "credentials")[0].what
        assert "operator" in of(found, "credentials")[0].do
    finally:
        await installation.sql("drop role guest")


@pytest.mark.parametrize("command", [["up"], ["migrate"], ["events"]])
@pytest.mark.parametrize("fault", ["role", "database"])
async def test_commands_say_what_is_wrong_with_the_address_of_the_database_and_advise_no_migration(
    postgres: EmbeddedPostgres, tmp_path: Path, fault: str, command: list[str]
) -> None:
    base = postgres.url.rpartition("/")[0]
    scheme, _, place = base.partition("://")
    nobody = f"{scheme}://nobody:secret@{place.rpartition('@')[2]}/postgres"
    env = {"KOORD_POSTGRES": nobody if fault == "role" else f"{base}/nosuch"}
    command = [sys.executable, "-m", "cli", *command, "--dir", str(tmp_path)]
    run = partial(subprocess.run, command, env=os.environ | env, capture_output=True, text=True, check=False)
    printed = await asyncio.to_thread(run)
    assert printed.returncode == 1
    line = printed.stderr.splitlines()[-1]
    if fault == "role":
        assert 'does not accept the login: password authentication failed for user "nobody"; correct user' in line
        assert "migrate" not in line
    else:
        assert 'database "nosuch" does not exist; name another database in KOORD_POSTGRES' in line
    assert "secret" not in printed.stderr
    assert "Traceback" not in printed.stderr


async def test_a_login_that_is_not_the_owners_migrates_nothing(
    postgres: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    connection = await asyncpg.connect(database)
    await connection.execute("create role onlooker login password 'x'")
    place = database.partition("://")[2].rpartition("@")[2]
    env = {"KOORD_POSTGRES": f"postgresql://onlooker:x@{place}"}
    printed = await asyncio.to_thread(CliRunner().invoke, koord, ["migrate", "--dir", str(tmp_path)], env=env)
    await connection.execute("drop role onlooker")
    await connection.close()
    assert printed.exit_code == 1
    assert "lets this login migrate nothing: permission denied" in printed.stderr
    assert "give the owner's login in KOORD_POSTGRES" in printed.stderr


async def test_without_nats_the_rest_is_still_checked(installation: Installation, tmp_path: Path) -> None:
    found = await examine(Endpoints(installation.endpoints.postgres, NOBODY), tmp_path)
    assert the(found, "nats").severity == "error"
    assert any("the bus could not be reached" in one.what for one in of(found, "services", "note"))


async def test_nats_that_is_stopped_and_started_again(database: str, tmp_path: Path) -> None:
    async with EmbeddedNats(tmp_path / "nats") as server:
        endpoints = Endpoints(database, server.url)
        assert of(await examine(endpoints, tmp_path), "nats") == []
        await server.stop()
        assert the(await examine(endpoints, tmp_path), "nats").severity == "error"
        await server.start()
        assert of(await examine(endpoints, tmp_path), "nats") == []


async def nats_with(configuration: str, folder: Path) -> tuple[Process, str]:
    folder.mkdir()
    port = free_port()
    (folder / "nats.conf").write_text(f'listen: "127.0.0.1:{port}"\n{configuration}')
    process = Process("nats-server", [_program(), "-c", folder / "nats.conf"], folder / "nats.log")
    await asyncio.to_thread(process.start)
    await asyncio.to_thread(process.wait_until, lambda: b"Server is ready" in (folder / "nats.log").read_bytes(), 10)
    return process, f"nats://127.0.0.1:{port}"


async def test_a_nats_without_jetstream_that_accepts_only_small_messages(database: str, tmp_path: Path) -> None:
    process, url = await nats_with("max_payload: 65536\n", tmp_path / "nats")
    found = of(await examine(Endpoints(database, url), tmp_path), "nats")
    await asyncio.to_thread(process.stop)
    assert [("max_payload" in one.what, one.severity) for one in found] == [(True, "error"), (False, "warning")]
    assert "JetStream is off" in found[1].what


async def test_a_bus_that_rejects_the_login_and_one_that_rejects_subscriptions(database: str, tmp_path: Path) -> None:
    users = "authorization { users: [ { user: ada, password: right, permissions: { subscribe: '_INBOX.>' } } ] }\njetstream {}\n"
    process, url = await nats_with(
        users.replace("jetstream {}\n", f'jetstream {{ store_dir: "{tmp_path}/js" }}\n'), tmp_path / "nats"
    )
    wrong = await examine(Endpoints(database, url.replace("//", "//ada:wrong@")), tmp_path)
    assert ("refuses ada" in the(wrong, "credentials").what, the(wrong, "credentials").severity) == (True, "error")
    assert "wrong" not in the(wrong, "credentials").what
    deaf = await examine(Endpoints(database, url.replace("//", "//ada:right@")), tmp_path)
    await asyncio.to_thread(process.stop)
    assert "may not subscribe to koord.head.audit, koord.head.cluster, " in the(deaf, "credentials").what
    assert "operator" in the(deaf, "credentials").do


async def test_a_login_without_access_to_the_time_of_jetstream_waits_for_no_response(tmp_path: Path) -> None:
    users = "authorization { users: [ { user: ada, password: right, permissions: { publish: '_INBOX.>' } } ] }\n"
    process, url = await nats_with(f'{users}jetstream {{ store_dir: "{tmp_path}/js" }}\n', tmp_path / "nats")
    began = time.monotonic()
    seen = await look(
        login_of(url.replace("//", "//ada:right@")), ["koord.head.cluster"], stream="KOORD_EVENTS_CLUSTER"
    )
    took_s = time.monotonic() - began
    await asyncio.to_thread(process.stop)
    assert (seen.ahead_s, seen.refused) == (None, ())
    assert took_s < STREAM_S


async def test_a_context_whose_writer_is_gone_and_one_that_was_never_written(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with AsyncExitStack() as open_:
        made = Installation(database, nats.url, tmp_path, open_)
        await made.leads("nodes-0", actor="action-ingest-0@host/12")
    found = of(await examine(Endpoints(database, nats.url), tmp_path), "services")
    gone = next(one for one in found if one.what.startswith("nodes-0"))
    assert ("action-ingest-0@host/12 led it last" in gone.what, "koord run action-ingest`" in gone.do) == (True, True)
    never = sorted(one.what.partition(" ")[0] for one in found if "never written" in one.what)
    assert never == ["cluster", "scheduling"]
    compiles = [one.what.partition(" ")[0] for one in found if "its first start after an installation" in one.do]
    assert compiles == ["scheduling"]


async def test_the_cluster_that_the_log_describes_is_named(installation: Installation) -> None:
    assert "does not record yet" in the(await installation.examine(), "cluster", "note").what
    await installation.append("cluster", ClusterIdentified(cluster="simulated/7"))
    assert the(await installation.examine(), "cluster", "note").what == "the log describes the simulated cluster 7"


async def test_a_parked_event_stops_a_service_and_a_follower_is_forgotten_or_late(installation: Installation) -> None:
    database = Database(installation.endpoints.postgres)
    await ServiceStore(database, "scheduler").park("cluster", 1, "ValueError: no such node")
    await database.close()
    await installation.append("cluster", NodeObserved(node="n1", object=Node(metadata=Metadata(name="n1"))), age_s=300)
    await installation.follows("scheduler", {"cluster": 1, "scheduling": 2})
    await installation.follows("console", {"cluster": 2})
    await installation.sql("update followers set seen_at = now() - interval '2 hours' where service = 'console'")
    parked, unseen, late = sorted(of(await installation.examine(), "followers"), key=lambda one: one.do[:20])[::1]
    texts = {one.what for one in (parked, unseen, late)}
    assert "scheduler stands still at cluster/1: ValueError: no such node" in texts
    assert "console was last seen 2 h ago" in texts
    assert any("scheduler is 1 events of cluster behind; the oldest of them is 5 m" in text for text in texts)


async def test_a_configuration_that_was_rejected_until_it_is_corrected(installation: Installation) -> None:
    source = "ConfigMap koordinator-system/koord-scheduler-config"
    refused = ConfigRejected(source=source, digest="bad", path="profiles[0].plugins", reason="no such plugin")
    await installation.append("scheduling", refused)
    finding = the(await installation.examine(), "configuration")
    assert (
        "refused at scheduling/3: profiles[0].plugins: no such plugin; shipped profile stays in force" in finding.what
    )
    await installation.append("scheduling", ConfigApplied(source=source, digest="01", text="kind: Mine\n"))
    assert of(await installation.examine(), "configuration") == []


async def test_a_permission_that_the_gateway_lacks(database: str, nats: EmbeddedNats, tmp_path: Path) -> None:
    async with AsyncExitStack() as open_:
        made = Installation(database, nats.url, tmp_path, open_)
        await made.leads("cluster", actor="gateway@1")
        await made.append("cluster", MissingPermission(name="default/web-1", rule="create pods/binding"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cli.doctor.all_checks.ANSWER_S", 0.5)
            found = of(await made.examine(), "rbac")
    silent, refused = found
    assert "did not answer" in silent.what
    assert (refused.severity, "`create pods/binding` for default/web-1" in refused.what) == ("error", True)


async def test_a_log_without_a_partition_for_its_next_event(installation: Installation) -> None:
    for number in range(3):
        await installation.sql(f"drop table events_audit_p{number}")
    assert (
        the(await installation.examine(), "disk").what == "audit has no partition for seq 1: its writer cannot append"
    )


async def test_agents_that_fell_silent_never_reported_or_are_ahead_of_our_clock(installation: Installation) -> None:
    await installation.append(
        "cluster",
        *(NodeObserved(node=name, object=Node(metadata=Metadata(name=name))) for name in ("n1", "n2", "n3", "n4")),
    )
    await installation.leads("metrics-0", actor="metrics-ingest-0@1")

    def report(node: str, ahead_s: float = 0) -> NodeReported:
        return NodeReported(node=node, at_ns=time.time_ns() + int(ahead_s * SECOND), interval_s=15, aggregate_s=60)

    await installation.append("metrics-0", report("n1"), age_s=200)
    await installation.append("metrics-0", report("n2"), report("n3", ahead_s=40))
    found = {one.what.partition(",")[0]: one for one in of(await installation.examine(), "nodes")}
    texts = " | ".join(found)
    assert "the agent of n1 last reported 3 m" in texts
    assert "no agent has reported for n4" in texts
    assert "the clock of node n3 is 40.0 s ahead" in " | ".join(
        one.what for one in of(await installation.examine(), "clock")
    )


async def test_reports_that_are_ignored_are_named_with_node_reason_time_and_remedy(installation: Installation) -> None:
    """By the doctor, and by `koord explain node`; also once the event has been carried forward."""
    await installation.leads("slo", actor="slo-controller@1")
    fault = IgnoredReport("NodeMetric", "cpu is negative", "cpu is -500, which is negative")
    ignored = NodeReportsIgnored("worker-1", (fault,), since_ns=1_700_000_000 * SECOND)
    await installation.append("slo", ignored, NodeReportsIgnored("worker-2", (fault,), since_ns=SECOND))
    await installation.append("slo", NodeReportsBelieved("worker-2", since_ns=SECOND))
    found = the(await installation.examine(), "nodes")
    assert found.what == (
        "usage reports about worker-1 cannot be true and are ignored since 2023-11-14T22:13:20Z: "
        "NodeMetric: cpu is -500, which is negative"
    )
    assert "koord dev delete nodemetric worker-1" in found.do
    env = {"KOORD_POSTGRES": installation.endpoints.postgres, "KOORD_NATS": installation.endpoints.nats}
    for name, is_named in (("worker-1", True), ("worker-2", False)):
        shown = await asyncio.to_thread(CliRunner().invoke, koord, ["explain", "node", name], env=env)
        assert (found.what in shown.output) == is_named
    node = Node(metadata=Metadata(name="worker-1"))
    await installation.append("cluster", NodeObserved(node="worker-1", object=node))
    described = await asyncio.to_thread(CliRunner().invoke, koord, ["describe", "node", "worker-1"], env=env)
    assert "ignored: NodeMetric: cpu is -500, which is negative" in described.stdout
    decided = NodeOvercommitted(node="worker-3", report_ns=0, decided_ns=SECOND, why="first")
    old = msgspec.Raw(msgspec.json.encode(NodeReportsIgnored("worker-3", (fault,), since_ns=SECOND)))
    await installation.append("slo", decided, CarriedForward(name="worker-3", original="slo/1", event=old))
    shown = await asyncio.to_thread(CliRunner().invoke, koord, ["explain", "node", "worker-3"], env=env)
    assert "ignored since 1970-01-01T00:00:01Z: NodeMetric: cpu is -500" in shown.stdout.splitlines()[1]
    assert shown.stdout.splitlines()[2].startswith(
        "    do: delete the NodeMetric, and the node reports anew: `koord dev delete nodemetric"
    )
    assert [one.what.split()[3] for one in of(await installation.examine(), "nodes")] == ["worker-3", "worker-1"]


async def test_parts_of_an_inventory_that_do_not_count_are_named_until_they_do(installation: Installation) -> None:
    await installation.leads("devices-0", actor="device-discovery@1")
    ignored = NodeDevicesReported("worker-1", "b", 1, SECOND, ignored={"gpu/3": "2 devices have this minor"})
    unread = NodeDevicesReported("worker-2", "b", 1, SECOND, unread={"gpu": "the library does not respond"})
    await installation.append("devices-0", ignored, unread, NodeDevicesReported("worker-3", "b", 1, SECOND))
    first, second = of(await installation.examine(), "nodes")
    assert first.what == "parts of the device inventory of worker-1 do not count: gpu/3: 2 devices have this minor"
    assert second.what.endswith("worker-2 do not count: type gpu: the library does not respond")
    assert "no pod gets these devices" in first.do
    await installation.append(
        "devices-0", NodeDevicesReported("worker-1", "b", 1, SECOND), NodeDevicesRemoved("worker-2")
    )
    assert "inventory" not in str(of(await installation.examine(), "nodes"))


async def test_settings_of_gangs_that_are_ignored_are_named(installation: Installation) -> None:
    metadata = {"name": "bad", "namespace": "d", "annotations": {gang.MODE: "Foo"}}
    body = {"metadata": metadata, "spec": {"minMember": 2}}
    await installation.append("cluster", ObjectObserved(resource=POD_GROUPS, name="d/bad", uid="bad", object=body))
    (found,) = [one for one in of(await installation.examine(), "configuration") if "gang" in one.what]
    assert (found.severity, found.do) == ("warning", "correct it: `koord dev patch podgroup bad PATCH -n d`")
    assert found.what == (
        f"gang d/bad: annotation {gang.MODE} is 'Foo', which is none of Strict, NonStrict: the gang is Strict"
    )


async def test_a_config_map_in_a_namespace_in_which_nobody_reads_it_is_named(installation: Installation) -> None:
    name = "default/slo-controller-config"
    body = {"metadata": {"name": "slo-controller-config", "namespace": "default"}, "data": {}}
    await installation.append("cluster", ObjectObserved(resource="configmaps", name=name, uid="c", object=body))
    (found,) = [one for one in of(await installation.examine(), "configuration") if "ConfigMap" in one.what]
    assert (found.severity, found.what) == (
        "warning",
        f"ConfigMap {name} is read by nobody; koordinator-system is meant",
    )
    assert found.do == (
        "apply it as koordinator-system/slo-controller-config, and delete this one: `koord dev delete configmap "
        "slo-controller-config -n default`"
    )
    await installation.append("cluster", ObjectDeleted(resource="configmaps", name=name, uid="c"))
    assert not [one for one in of(await installation.examine(), "configuration") if "ConfigMap" in one.what]


async def test_rejected_quotas_are_named_until_they_are_corrected(installation: Installation) -> None:
    await installation.leads("quota", actor="quota-ledger@1")
    reason = "quota team: min of cpu is above its max; raise max or lower min"
    await installation.append("quota", QuotaRejected("team", "minMax", reason), QuotaRejected("other", "minMax", "x"))
    await installation.append("quota", QuotaRejected("other"))
    (found,) = [one for one in of(await installation.examine(), "configuration") if "Quota" in one.what]
    assert (found.severity, found.what) == (
        "warning",
        f"Quota team is rejected, and its pods wait: {reason.removeprefix('quota team: ')}",
    )
    assert found.do.startswith(f"correct it: `koord dev patch {QUOTAS} team PATCH -n NAMESPACE`")


async def test_a_hung_postgres_is_reported_within_seconds(tmp_path: Path, nats: EmbeddedNats) -> None:
    async with EmbeddedPostgres(tmp_path / "pg") as server:
        await server.suspend()
        started = time.monotonic()
        found = await examine(Endpoints(server.url, nats.url), tmp_path)
        await server.resume()
    assert the(found, "postgres").severity == "error"
    assert time.monotonic() - started < 15


def test_nowhere_to_look_is_one_line(tmp_path: Path) -> None:
    env = {name: "" for name in os.environ if name.startswith("KOORD_")}
    result = CliRunner().invoke(koord, ["doctor", "--dir", str(tmp_path)], env=env)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert issubclass(KoordError, Exception)


async def test_a_login_that_publishes_what_its_writer_does_not_send_is_named(installation: Installation) -> None:
    bus = Bus(installation.endpoints.nats, name="forger")
    await bus.start()

    async def forge() -> None:
        while True:
            await bus.publish(announcements.beacon_subject("quota"), b"\xc1 no beacon")
            beacon = announcements.Beacon("scheduling", 2**62, 2**62, bytes(32))
            await bus.publish(announcements.beacon_subject("scheduling"), announcements.encode(beacon))
            await bus.publish(announcements.batch_subject("cluster"), announcements.encode(beacon))
            await asyncio.sleep(0.05)

    forging = asyncio.create_task(forge())
    try:
        found = of(await installation.examine(), "credentials", "error")
    finally:
        forging.cancel()
        await bus.close()
    named = {one.what.partition(" publishes ")[0] for one in found}
    assert named == {
        "the login koord.gateway or koord.simulator",
        "the login koord.scheduler",
        "the login koord.quota-ledger",
    }


async def test_intents_that_were_refused_name_their_context(installation: Installation) -> None:
    refused = IntentRefused(
        intent="FieldsDesired", resource="nodes", name="n", reason="metrics-0 does not declare nodes"
    )
    await installation.append("cluster", refused, cause=Cause("metrics-0", 7))
    found = of(await installation.examine(), "credentials", "error")
    assert ["metrics-0" in one.what and "does not declare nodes" in one.what for one in found] == [True]


async def test_objects_whose_newest_write_was_rejected_are_named_until_one_is_applied(
    installation: Installation,
) -> None:
    slos, reason = "nodeslos.slo.koordinator.sh", "422 spec.resourceQOSStrategy must be an object"
    for event in (
        DesiredStateRejected(resource=slos, name="node-0", reason=reason),
        DesiredStateApplied(resource="nodes", name="node-0", fields="colocation"),
        DesiredStateRejected(resource="pods", name="d/web", reason="pods d/web is gone"),
    ):
        await installation.append("cluster", event, cause=Cause("slo", 7))
    (found,) = [one for one in of(await installation.examine(), "cluster", "warning") if "newest write" in one.what]
    assert found.what.startswith(f"the newest write to {slos} node-0 was rejected, at ")
    assert found.what.endswith(f" for node-0: {reason}")
    await installation.append("cluster", DesiredStateApplied(resource=slos, name="node-0"), cause=Cause("slo", 8))
    assert "newest write" not in str(await installation.examine())
