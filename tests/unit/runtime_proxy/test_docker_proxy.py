"""The proxy in front of Docker's API on real sockets: what passes through, and faults of hook servers and of Docker."""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from services.runtime_proxy.docker.docker_api import NoDocker
from services.runtime_proxy.docker.serve_docker import serve_docker
from services.runtime_proxy.hook_client import HookClient, SkippedPods
from services.runtime_proxy.known_containers import KnownContainers
from services.runtime_proxy.own_socket import NoSocket, SocketTaken
from services.runtime_proxy.registered_servers import RegisteredServers
from services.runtime_proxy.settings import ProxyOptions
from shared.runtime_hooks import stages
from tests.unit.runtime_proxy.docker_backend import INFO, Backend, answer
from tests.unit.runtime_proxy.hook_server import HookServer, changed, hanging, register, serving
from tests.unit.runtime_proxy.test_docker_calls import BODY, LABELS, NAME, POD_BODY, POD_NAME

HOOK_WITHIN_S = 0.2
CREATE_POD, CREATE = f"POST /v1.41/containers/create?name={POD_NAME}", f"POST /v1.41/containers/create?name={NAME}"
START = "POST /v1.41/containers/c/start"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: tcp\r\n"


class Site(NamedTuple):
    folder: Path
    backend: Backend
    hooks: HookServer
    known: KnownContainers

    @property
    def proxy(self) -> Path:
        return self.folder / "p.sock"

    @property
    def registered(self) -> Path:
        return self.folder / "registered"

    def register(self, *listed: str, policy: str = "Ignore") -> None:
        register(self.registered, self.folder / "h.sock", *listed, policy=policy)

    async def call(self, target: str, body: Any = None) -> tuple[int, Any]:
        method, path = target.split(" ")
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self.proxy))) as client,
            client.request(method, f"http://docker{path}", json=body) as found,
        ):
            return found.status, (await found.json() if found.content_type == "application/json" else None)

    @asynccontextmanager
    async def connected(self, *lines: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_unix_connection(self.proxy)
        writer.write(b"".join(lines) + b"\r\n")
        try:
            yield reader, writer
        finally:
            writer.close()


@asynccontextmanager
async def running(folder: Path, backend: Backend) -> AsyncIterator[KnownContainers]:
    hooks = HookClient(RegisteredServers(folder / "registered"), HOOK_WITHIN_S, SkippedPods("skip", "true"))
    options = ProxyOptions(str(folder / "p.sock"), str(folder / "d.sock"), docker=True)
    try:
        async with backend.serving(folder / "d.sock"), serve_docker(options, hooks) as found:
            yield found.known
    finally:
        await hooks.close()


@pytest.fixture
def folder() -> Any:
    with tempfile.TemporaryDirectory(prefix="koord-") as made:  # short: that of a socket has at most 107 bytes
        yield Path(made)


@pytest.fixture
async def site(folder: Path) -> AsyncIterator[Site]:
    backend, hooks = Backend(), HookServer()
    backend.answers |= {
        CREATE_POD: answer({"Id": "s"}, "201 Created"),
        CREATE: answer({"Id": "c"}, "201 Created"),
        START: NO_CONTENT,
    }
    async with serving(hooks, folder / "h.sock"), running(folder, backend) as known:
        yield Site(folder, backend, hooks, known)


async def test_a_request_passes_as_it_is_and_so_does_its_answer(site: Site) -> None:
    target = "/v1.41/images/a%2Fb%3Fc/json?filters=%7B%22x%22%3A1%7D&q=" + "x" * 20_000
    site.backend.answers[f"GET {target}"] = (
        b"HTTP/1.1 418 Short And Stout\r\nX-Own: 1\r\nX-Own: 2\r\nServer: Docker\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: 4\r\n\r\n\x1f\x8b\xff\x00"
    )
    head = f"GET {target} HTTP/1.1\r\nHost: any\r\nX-Registry-Auth: {'y' * 9_000}\r\nConnection: x-hop\r\nX-Hop: 1\r\n"
    async with site.connected(head.encode()) as (reader, _):
        found = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert await reader.readexactly(4) == b"\x1f\x8b\xff\x00"
    assert found.startswith("HTTP/1.1 418 Short And Stout\r\n")
    assert found.count("X-Own: 1") == found.count("X-Own: 2") == found.count("Server: Docker") == 1
    received = site.backend.received[-1]
    assert (received.header("X-Registry-Auth"), received.header("Host")) == ("y" * 9_000, "any")
    names = {line.partition(":")[0] for line in received.head}
    assert names == {"Host", "X-Registry-Auth", "Connection"}, "the client's headers alone, but for this hop"


async def test_bodies_pass_in_pieces_in_both_directions(site: Site) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await asyncio.sleep(0.2)
        writer.write(b"1\r\nb\r\n0\r\n\r\n")

    site.backend.answers["POST /load"] = echo
    head = b"POST /load HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
    async with site.connected(head) as (reader, writer):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"3\r\nxyz\r\n0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        began = time.monotonic()
        assert await reader.readexactly(6) == b"1\r\na\r\n"
        assert time.monotonic() - began < 0.15, "a piece does not wait for the next"
        assert await reader.readexactly(11) == b"1\r\nb\r\n0\r\n\r\n"
        writer.write(b"HEAD /_ping HTTP/1.1\r\nHost: d\r\n\r\n")
        site.backend.answers["HEAD /_ping"] = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 5\r\n\r\n"
        found = await reader.readuntil(b"\r\n\r\n")
        assert b"Api-Version: 1.41" in found
        assert b"Content-Length: 5" in found
    assert b"xyz" in site.backend.received[-2].body


async def test_an_answer_that_breaks_off_breaks_off_for_the_client(site: Site) -> None:
    site.backend.answers["GET /half"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
    async with site.connected(b"GET /half HTTP/1.1\r\nHost: d\r\n") as (reader, _):
        assert not (await reader.read()).endswith(b"0\r\n\r\n")


async def test_a_client_that_goes_away_ends_its_stream_at_docker(site: Site) -> None:
    ended = asyncio.Event()

    async def events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await reader.read()
        ended.set()

    site.backend.answers["GET /events"] = events
    async with site.connected(b"GET /events HTTP/1.1\r\nHost: d\r\n") as (reader, _):
        await reader.readuntil(b"a\r\n")
    await asyncio.wait_for(ended.wait(), 2)


@pytest.mark.parametrize(
    ("requested", "answered"),
    [
        (UPGRADE, b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"),
        (b"", b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"),
    ],
    ids=["upgraded", "an older client"],
)
async def test_an_attached_connection_passes_bytes_in_both_directions_until_docker_ends_it(
    site: Site, requested: bytes, answered: bytes
) -> None:
    async def attached(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answered + b"$ ")
        writer.write((await reader.read()).upper())  # all that the client sends until it has no more

    site.backend.answers["POST /v1.41/exec/e/start"] = attached
    body = b'{"Detach":false}'
    head = b"POST /v1.41/exec/e/start HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n" % len(body)
    async with site.connected(head, requested) as (reader, writer):
        writer.write(body)
        assert await reader.readuntil(b"\r\n\r\n") == answered
        assert await reader.readexactly(2) == b"$ "
        for _ in range(40):
            writer.write(b"\x00GET / HTTP/1.1\r\n\r\n" * 200)
            await writer.drain()
        writer.write_eof()
        assert await reader.read() == b"\x00GET / HTTP/1.1\r\n\r\n" * 8_000
    received = site.backend.received[-1]
    assert received.body == body
    assert received.header("Upgrade") == ("tcp" if requested else "")


async def test_a_refused_upgrade_does_not_open_a_way_around_the_hooks(site: Site) -> None:
    site.backend.answers["POST /containers/x/attach"] = answer({"message": "No such container: x"}, "404 Not Found")
    hidden = b"POST /containers/create?name=free HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\n\r\n{}"
    async with site.connected(b"POST /containers/x/attach HTTP/1.1\r\nHost: d\r\n", UPGRADE) as (reader, writer):
        found = await reader.readuntil(b"}")
        assert found.startswith(b"HTTP/1.1 404 Not Found\r\n")
        assert found.endswith(b'{"message":"No such container: x"}')
        with suppress(ConnectionError):
            writer.write(hidden)
            assert not await reader.read()
    async with site.connected(f"{CREATE} HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\n".encode(), UPGRADE) as (
        _,
        writer,
    ):
        writer.write(b"{}")  # an upgrade of a request of the table is none
        await asyncio.sleep(0.05)
    assert [each.target for each in site.backend.received[2:]] == ["POST /containers/x/attach"]


async def test_a_container_is_created_as_its_hooks_say(site: Site) -> None:
    site.register()
    site.hooks.answers[stages.CREATE_CONTAINER] = changed(
        lambda found: setattr(found.container_resources, "cpu_shares", 51)
    )
    assert await site.call(CREATE_POD, POD_BODY) == (201, {"Id": "s"})
    assert await site.call(CREATE, BODY) == (201, {"Id": "c"})
    assert await site.call(START) == (204, None)
    created = json.loads(site.backend.received[-2].body)
    assert created["HostConfig"]["CpuShares"] == 51
    assert {key: created[key] for key in ("Image", "NetworkingConfig")} == {"Image": "web", "NetworkingConfig": None}
    for container in ("c", "s"):
        site.backend.answers[f"POST /containers/{container}/stop?t=5"] = NO_CONTENT
        assert (await site.call(f"POST /containers/{container}/stop?t=5"))[0] == 204
        assert (await site.call(f"POST /containers/{container}/stop?t=5"))[0] == 204  # Docker's own answer
    assert site.hooks.stages == [
        "PreRunPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStartContainer", "PostStopContainer",
        "PostStopPodSandbox",
    ]  # fmt: skip
    assert (site.known.pods, site.known.containers) == ({}, {})


@pytest.mark.parametrize("request_of", ["POST /containers/{}/stop", "DELETE /containers/{}"])
async def test_a_container_that_docker_no_longer_has_is_forgotten(site: Site, request_of: str) -> None:
    await site.call(CREATE_POD, POD_BODY)
    await site.call(CREATE, BODY)
    for container in ("c", "s"):
        target = request_of.format(container)
        site.backend.answers[target] = answer({"message": "busy"}, "409 Conflict")
        assert (await site.call(target))[0] == 409
        assert site.known.pods
        site.backend.answers[target] = answer({"message": f"No such container: {container}"}, "404 Not Found")
        assert (await site.call(target))[0] == 404
    assert (site.known.pods, site.known.containers) == ({}, {})


async def test_the_start_of_a_sandbox_is_no_request_without_hooks(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await site.call(CREATE_POD, POD_BODY)
    for container, logged in (("s", False), ("unknown", True)):
        site.backend.answers[f"POST /containers/{container}/start"] = NO_CONTENT
        assert (await site.call(f"POST /containers/{container}/start"))[0] == 204
        assert ("a request passes without hooks" in caplog.text) == logged


async def test_without_a_hook_a_body_passes_byte_by_byte(site: Site) -> None:
    body = b'{"Labels":{"io.kubernetes.docker.type":"podsandbox"},  "Big":100000000000000000000,"F":1.50}'
    url = f"http://docker{CREATE_POD.split(' ')[1]}"
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(site.proxy))) as client,
        client.post(url, data=body) as found,
    ):
        assert found.status == 201
    assert site.backend.received[-1].body == body


async def test_a_server_that_hangs_before_a_request_is_survived_by_its_policy(site: Site) -> None:
    site.hooks.answers[stages.RUN_POD_SANDBOX] = hanging
    site.register(stages.RUN_POD_SANDBOX, policy="Fail")
    status, body = await site.call(CREATE_POD, POD_BODY)
    assert status == 500
    assert "PreRunPodSandbox of pod default/web is refused" in body["message"]
    assert len(site.backend.received) == 2, "Docker was not called"
    site.register(stages.RUN_POD_SANDBOX)
    assert (await site.call(CREATE_POD, POD_BODY))[0] == 201
    assert json.loads(site.backend.received[-1].body) == POD_BODY


async def test_a_server_that_hangs_after_a_request_is_an_error_by_its_policy(site: Site) -> None:
    site.hooks.answers[stages.AFTER_START_CONTAINER] = hanging
    await site.call(CREATE_POD, POD_BODY)
    await site.call(CREATE, BODY)
    site.register(stages.AFTER_START_CONTAINER)
    assert (await site.call(START))[0] == 204
    site.register(stages.AFTER_START_CONTAINER, policy="Fail")
    status, body = await site.call(START)
    assert status == 500
    assert "PostStartContainer of container main of pod default/web failed after the request" in body["message"]
    site.backend.answers[START] = answer({"message": "no such image"}, "404 Not Found")
    assert await site.call(START) == (404, {"message": "no such image"}), "Docker's own error is told first"


@pytest.mark.parametrize(
    ("target", "body", "status", "text"),
    [
        ("POST /containers/create", {}, 500, "the name '' is not k8s_"),
        (CREATE, BODY, 500, "its sandbox s is not known"),
        (CREATE, {"Env": 1}, 400, "Env: expected a list, got a whole number"),
        ("POST /containers/c/update", {"CpuShares": "1"}, 400, "update of container c: CpuShares"),
    ],
)
async def test_a_request_that_cannot_be_hooked_does_not_reach_docker(
    site: Site, target: str, body: Any, status: int, text: str
) -> None:
    found = await site.call(target, body)
    assert found[0] == status
    assert text in found[1]["message"]
    assert len(site.backend.received) == 2


async def test_the_pod_of_a_sandbox_that_is_not_known_is_that_of_docker(site: Site) -> None:
    sandbox = "5" * 64
    body = BODY | {"Labels": LABELS | {"io.kubernetes.sandbox.id": sandbox}}
    inspect = f"GET /containers/{sandbox}/json"
    found = {"Id": sandbox, "Name": "/" + POD_NAME, "Config": {"Labels": POD_BODY["Labels"]}, "HostConfig": {}}
    for answered in (answer({"message": "busy"}, "500 Error"), answer(found | {"Config": {}}), answer(found)):
        site.backend.answers[inspect] = answered
        status, _ = await site.call(CREATE, body)
        assert status == (201 if sandbox in site.known.pods else 500)
    assert site.known.containers["c"].subject.pod_labels["app"] == "web"
    site.backend.received.clear()
    for target in (CREATE, CREATE):
        assert (await site.call(target, body))[0] == 201
    assert [each.target for each in site.backend.received] == [CREATE, CREATE]


async def test_a_body_without_end_is_not_read_to_its_end(site: Site) -> None:
    head = f"{CREATE} HTTP/1.1\r\nHost: d\r\nContent-Length: {1 << 40}\r\n".encode()
    async with site.connected(head) as (reader, writer):
        sending = asyncio.create_task(_send_forever(writer))
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        sending.cancel()
    assert len(site.backend.received) == 2


async def _send_forever(writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while True:
            writer.write(b"x" * (1 << 20))
            await writer.drain()


async def test_a_container_whose_client_has_gone_is_known(site: Site) -> None:
    created = asyncio.Event()

    async def slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        created.set()
        await asyncio.sleep(0.1)
        writer.write(answer({"Id": "s"}, "201 Created"))

    site.backend.answers[CREATE_POD] = slowly
    data = json.dumps(POD_BODY).encode()
    head = f"{CREATE_POD} HTTP/1.1\r\nHost: d\r\nContent-Length: {len(data)}\r\n".encode()
    async with site.connected(head) as (_, writer):
        writer.write(data)
        await asyncio.wait_for(created.wait(), 2)
    await asyncio.sleep(0.2)
    assert list(site.known.pods) == ["s"]


async def test_docker_that_is_gone_or_answers_nonsense_is_a_bad_gateway(site: Site) -> None:
    site.backend.answers |= {CREATE_POD: b"nonsense\r\n\r\n", "GET /x": b"nonsense\r\n\r\n", "GET /up": b"nonsense"}
    for target in (CREATE_POD, "GET /x"):
        status, body = await site.call(target, POD_BODY)
        assert status == 502
        assert "Docker does not answer" in body["message"]
    (site.folder / "d.sock").unlink()
    for lines in (b"GET /x HTTP/1.1\r\nHost: d\r\n", b"GET /up HTTP/1.1\r\nHost: d\r\n" + UPGRADE):
        async with site.connected(lines) as (reader, _):
            assert (await reader.readline()).startswith(b"HTTP/1.1 502")
    assert not site.known.pods


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"GET /info": answer({"ServerVersion": "1"})}, "GET /info: the field CgroupDriver is missing"),
        ({"GET /info": answer({"message": "x"}, "404 Not Found")}, "neither /info nor"),
        ({"GET /info": answer({"message": "starting"}, "503 Unavailable")}, "GET /info: 503 .*starting"),
        ({"GET /containers/json?all=1": answer({})}, "GET /containers/json.*expected a list, got an object"),
        ({"GET /info": b"\xff\r\n\r\n"}, "GET /info"),
    ],
)
async def test_a_start_in_front_of_something_else_names_the_fault(folder: Path, answers: Any, error: str) -> None:
    backend = Backend()
    backend.answers |= answers
    with pytest.raises(NoDocker, match=f"Docker at {folder}/d.sock does not answer: .*{error}.*--remote-runtime"):
        async with running(folder, backend):
            pass


async def test_a_container_that_cannot_be_inspected_does_not_keep_the_proxy_from_starting(folder: Path) -> None:
    backend = Backend()
    backend.answers |= {
        "GET /containers/json?all=1": answer([{"Id": "bad"}, {"Id": "gone"}, {"Id": "s"}]),
        "GET /containers/bad/json": answer({"Id": 1}),
        "GET /containers/s/json": answer(
            {"Id": "s", "Name": "/" + POD_NAME, "Config": {"Labels": POD_BODY["Labels"]}, "HostConfig": {}}
        ),
    }
    async with running(folder, backend) as known:
        assert list(known.pods) == ["s"]
        with pytest.raises(SocketTaken, match=r"p.sock is served by another program"):
            async with running(folder, backend):
                pass
        await asyncio.sleep(0.01)  # the connection that found it taken ends


async def test_a_socket_that_cannot_be_made_is_named(folder: Path) -> None:
    hooks = HookClient(RegisteredServers(folder), HOOK_WITHIN_S, SkippedPods("skip", "true"))
    options = ProxyOptions("/proc/koord.sock", str(folder / "d.sock"), docker=True)
    backend = Backend()
    backend.answers["GET /info"] = answer(INFO)
    async with backend.serving(folder / "d.sock"):
        with pytest.raises(NoSocket, match=r"/proc/koord.sock cannot be served"):
            async with serve_docker(options, hooks):
                pass
