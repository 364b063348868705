"""Results of `koord credentials init`, on real servers with TLS: NKEYs, passwords, certificates, nodes, and rejected
connections.
"""

import asyncio
import contextlib
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import aiomqtt
import asyncpg
import pytest
import pytest_asyncio
import trustme
from click.testing import CliRunner, Result

from cli.credentials.credentials_folder import env_file, read_env
from cli.embedded import EmbeddedPostgres
from cli.main import koord
from cli.processes.child_process import Process
from cli.processes.free_ports import free_port
from cli.supervisor.system_servers import migrate_to_this_release
from shared.bus import Bus, NotPermitted
from shared.bus.login import BadLogin
from shared.log.database import FAILURES, Database
from shared.log.reader import LogReader
from shared.log.writer import LogWriter
from shared.runtime.task_cancellation import cancel_and_wait
from tests.integration.security.conftest import members
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
NATS_SERVER = Path(sys.executable).with_name("nats-server")


class Installation(NamedTuple):
    """Servers of one's own, as compose.yaml runs them."""

    folder: Path
    nats: Process
    ports: dict[str, int]
    postgres: EmbeddedPostgres

    def env(self, login: str, *, node: bool = False) -> dict[str, str]:
        return read_env(env_file(self.folder, login, node=node))

    def koord(self, *arguments: str) -> Result:
        return CliRunner().invoke(koord, ["credentials", *arguments])

    def bus(self, login: str, **instead: str) -> Bus:
        env = {**self.env(login), **instead}
        return Bus(env["KOORD_NATS"], name=login, nkey=env.get("KOORD_NATS_NKEY", ""), ca=env.get("KOORD_NATS_CA", ""))


@asynccontextmanager
async def encrypted(tls: Path, port: int, behind: int, address: str = "127.0.0.1") -> AsyncIterator[None]:
    """Puts TLS in front of a Postgres whose wheel is built without it; a client negotiates TLS as the protocol
    requires."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.crt", tls / "server.key")
    pumping: set[asyncio.Task[None]] = set()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readexactly(8) != SSL_REQUEST:
                writer.close()
                return
            writer.write(b"S")
            await writer.drain()
            await writer.start_tls(context)
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
            writer.close()
            return
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", behind)
        for one in (pump(reader, server_writer), pump(server_reader, writer)):
            task = asyncio.create_task(one)
            pumping.add(task)
            task.add_done_callback(pumping.discard)

    server = await asyncio.start_server(serve, address or None, port)
    try:
        yield
    finally:
        server.close()
        await cancel_and_wait(*pumping)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    folder, run = tmp_path_factory.mktemp("made") / "credentials", tmp_path_factory.mktemp("run")
    ports = {name: free_port() for name in ("nats", "mqtt", "postgres")}
    places = ["--nats", f"localhost:{ports['nats']}", "--mqtt", f"localhost:{ports['mqtt']}"]
    places += ["--postgres", f"localhost:{ports['postgres']}/koord", "--mount", ""]
    made = await asyncio.to_thread(CliRunner().invoke, koord, ["credentials", "init", str(folder), *places])
    assert made.exit_code == 0, made.output
    postgres = EmbeddedPostgres(run / "postgres")
    nats_server = Process("nats-server", [NATS_SERVER, "-c", folder / "nats" / "nats.conf"], run / "nats.log")
    async with postgres, encrypted(folder / "postgres" / "tls", ports["postgres"], postgres.port):
        owner = await asyncpg.connect(postgres.url)
        await owner.execute((folder / "postgres" / "roles.sql").read_text())
        await owner.execute((folder / "postgres" / "roles.sql").read_text())  # safe to repeat
        await owner.close()
        await migrate_to_this_release(postgres.url)
        nats_server.start()
        await asyncio.to_thread(nats_server.wait_until, lambda: "Server is ready" in nats_server.tail(50), 20)
        yield Installation(folder, nats_server, ports, postgres)
        nats_server.stop()


async def test_every_service_connects_to_the_bus_over_tls_with_its_nkey(installation: Installation) -> None:
    for one in (*(one.name for one in members() if not one.name.endswith("-1")), "operator", "auditor"):
        env = installation.env(one)
        assert urlsplit(env["KOORD_NATS"]).password is None
        bus = installation.bus(one)
        await bus.start()
        await until(partial(getattr, bus, "connected"))
        assert (bus.refused, bus.violations) == ("", 0)
        await bus.close()


async def test_a_request_gets_its_response_over_tls_with_nkeys(installation: Installation) -> None:
    answering, requesting = installation.bus("simulator"), installation.bus("operator")
    await answering.start()
    await requesting.start()

    async def answer(data: bytes) -> bytes:
        return data[::-1]

    await answering.respond("koord.simulator.get", answer)
    assert await requesting.request("koord.simulator.get", b"abc", deadline_s=20) == b"cba"
    await answering.close()
    await requesting.close()


async def test_another_authority_another_nkey_or_none_is_rejected(installation: Installation, tmp_path: Path) -> None:
    other = tmp_path / "other.crt"
    trustme.CA().cert_pem.write_to_path(str(other))
    strange = installation.bus("scheduler", KOORD_NATS_CA=str(other))
    await strange.start()
    assert not strange.connected
    await strange.close()
    stolen = installation.bus("scheduler", KOORD_NATS_NKEY=installation.env("auditor")["KOORD_NATS_NKEY"])
    await stolen.start()
    # An NKEY is the login: the auditor's, whatever the user in the URL. Its inboxes are then not those of the name, and
    # nothing passes.
    with pytest.raises(NotPermitted):
        await stolen.request("koord.simulator.get", b"", deadline_s=10)
    await stolen.close()
    none = installation.bus("scheduler", KOORD_NATS_NKEY="")
    await none.start()
    with pytest.raises(NotPermitted, match="is refused"):
        await none.request("koord.simulator.get", b"", deadline_s=10)
    await none.close()
    with pytest.raises(BadLogin, match="KOORD_NATS_NKEY"):
        await installation.bus("scheduler", KOORD_NATS_NKEY=str(tmp_path / "none")).start()


async def test_a_connection_without_tls_is_rejected(installation: Installation) -> None:
    plain = Bus(f"nats://koord.scheduler:x@127.0.0.1:{installation.ports['nats']}", name="plain")
    await plain.start()
    assert not plain.connected
    await plain.close()
    env = installation.env("scheduler")
    hba = (installation.folder / "postgres" / "pg_hba.conf").read_text().splitlines()
    assert {line.split()[0] for line in hba if line.split()[2:3] != ["koord"] and not line.startswith("#")} == {
        "hostssl"
    }
    assert "scram-sha-256" in hba[-1]
    with pytest.raises((asyncpg.PostgresError, OSError)):
        await asyncpg.connect(env["KOORD_POSTGRES"].replace("sslmode=verify-full", "sslmode=disable"))


async def test_a_service_appends_over_tls_that_verifies_the_server(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    env = installation.env("scheduler")
    assert env["KOORD_POSTGRES"].endswith("?sslmode=verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", env["PGSSLROOTCERT"])
    database = Database(env["KOORD_POSTGRES"])
    writer = LogWriter(database, None, "scheduling", "scheduler@test")
    await writer.acquire()
    await writer.begin("0", (), now_ns=1_800_000_000_000_000_000, seen={})
    assert (await LogReader(database).head("scheduling")).seq == writer.head.seq
    await writer.close()
    await database.close()

    host = socket.gethostname()  # resolves to this machine as well, and is not in the certificate
    async with encrypted(installation.folder / "postgres" / "tls", port := free_port(), installation.postgres.port, ""):
        named = Database(env["KOORD_POSTGRES"].replace(f"localhost:{installation.ports['postgres']}", f"{host}:{port}"))
        with pytest.raises((ssl.SSLError, *FAILURES), match=r"(?i)hostname mismatch|not valid for"):
            await LogReader(named).contexts()
        await named.close()
    other = tmp_path / "other.crt"
    trustme.CA().cert_pem.write_to_path(str(other))
    monkeypatch.setenv("PGSSLROOTCERT", str(other))
    strange = Database(env["KOORD_POSTGRES"])
    with pytest.raises((ssl.SSLError, *FAILURES)):
        await LogReader(strange).contexts()
    await strange.close()


async def test_a_node_gets_its_login_and_publishes_for_itself_alone(installation: Installation) -> None:
    for name in ("node-1", "rack.2"):
        made = await asyncio.to_thread(installation.koord, "node", name, "--in", str(installation.folder))
        assert made.exit_code == 0, made.output
    installation.nats.send(signal.SIGHUP)
    first, second = installation.env("node-1", node=True), installation.env("rack%2E2", node=True)
    received: list[tuple[str, bytes]] = []
    ingest = installation.bus("metrics-ingest-0")
    await ingest.start()

    async def attend(question: object) -> None:
        received.append((question.subject, question.data))  # type: ignore[attr-defined]
        await question.respond(b"taken")  # type: ignore[attr-defined]

    await ingest.handle("koord.node.*.report", attend)
    agent = Bus(first["KOORD_NATS"], name="agent", ca=first["KOORD_NATS_CA"])
    await agent.start()
    await until(lambda: agent.connected)  # the server applies its users with a delay
    assert await agent.request("koord.node.node-1.report", b"mine", deadline_s=20) == b"taken"
    with pytest.raises(NotPermitted, match=r"koord\.node\.rack%2E2\.report"):
        await agent.request("koord.node.rack%2E2.report", b"forged", deadline_s=20)
    mqtt = urlsplit(second["KOORD_MQTT"])
    async with aiomqtt.Client(
        mqtt.hostname or "",
        mqtt.port or 0,
        username=unquote(mqtt.username or ""),
        password=mqtt.password,
        tls_context=ssl.create_default_context(cafile=second["KOORD_NATS_CA"]),
    ) as over_mqtt:
        spied: list[bytes] = []
        await ingest.subscribe("koord.node.*.report", spied.append)
        await over_mqtt.publish("koord/node/node-1/report", b"forged", qos=1)
        await over_mqtt.publish("koord/node/rack%2E2/report", b"own", qos=1)
        await until(lambda: b"own" in spied)
    assert spied == [b"own"]
    assert received == [("koord.node.node-1.report", b"mine")]
    await agent.close()
    await ingest.close()


async def test_a_node_cannot_have_the_name_of_another_login(installation: Installation) -> None:
    for name in ("operator", "auditor", "koord"):
        refused = await asyncio.to_thread(installation.koord, "node", name, "--in", str(installation.folder))
        assert refused.exit_code == 1
        assert "no node can be called" in refused.output


async def test_a_rotated_login_works_and_the_old_one_is_rejected(installation: Installation) -> None:
    before = installation.env("gateway")["KOORD_POSTGRES"]
    seed = Path(installation.env("gateway")["KOORD_NATS_NKEY"])
    old_seed = seed.read_text()
    assert (await asyncio.to_thread(installation.koord, "rotate", str(installation.folder), "gateway")).exit_code == 0
    after = installation.env("gateway")["KOORD_POSTGRES"]
    assert (after != before, seed.read_text() != old_seed) == (True, True)
    done = await asyncio.to_thread(
        installation.koord, "postgres", str(installation.folder), "--owner", installation.postgres.url
    )
    assert done.exit_code == 0, done.output
    context = ssl.create_default_context(cafile=str(installation.folder / "ca.crt"))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(before.partition("?")[0], ssl=context)
    await (await asyncpg.connect(after.partition("?")[0], ssl=context)).close()
    unknown = await asyncio.to_thread(installation.koord, "rotate", str(installation.folder), "nobody")
    assert (unknown.exit_code, "scheduler" in unknown.output) == (1, True)


async def test_nats_server_accepts_the_configuration(installation: Installation) -> None:
    command = [str(NATS_SERVER), "-t", "-c", str(installation.folder / "nats" / "nats.conf")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, "Plaintext" in checked.stderr) == (0, False), checked.stderr


async def test_no_secret_is_in_the_files_of_servers(installation: Installation) -> None:
    from cli.credentials import secrets_file

    secrets = secrets_file.read(installation.folder).secrets
    assert len(secrets) > 8
    server_files = [
        path
        for name in ("nats", "postgres")
        for path in (installation.folder / name).rglob("*.*")
        if path.suffix in {".conf", ".sql", ".crt", ".key"}
    ]
    text = "".join(path.read_text() for path in server_files)
    assert not [login for login, secret in secrets.items() if secret.password in text or secret.seed in text]
    shown = await asyncio.to_thread(installation.koord, "show", str(installation.folder), "-o", "json")
    assert shown.exit_code == 0, shown.output
    assert not [
        login for login, secret in secrets.items() if secret.password in shown.output or secret.seed in shown.output
    ]
