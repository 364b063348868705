"""Reasons for which the API server gave no response, from real sockets, without Python's types."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from cli.dev.kubeconfig import write_kubeconfig
from cli.processes.free_ports import free_port
from services.gateway.kube_api.api_errors import IdleWatch, Unanswered
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.connection_error_text import connection_fault
from services.gateway.kube_api.resources import PODS


def kubeconfig(folder: Path, url: str, authority: trustme.CA) -> Path:
    ca = authority.cert_pem.bytes()
    return write_kubeconfig(folder / "kubeconfig", url=url, ca=ca, user="gateway", credentials="token")


@pytest.mark.parametrize(
    ("host", "reason"), [("127.0.0.1", "Connection refused"), ("kube.invalid", "Name or service not known")]
)
async def test_a_server_that_is_away_is_described_in_the_words_of_the_system(
    host: str, reason: str, tmp_path: Path
) -> None:
    """Both by the pool of short requests and by watches."""
    url = f"https://{host}:{free_port()}"
    async with KubeApi(str(kubeconfig(tmp_path, url, trustme.CA()))) as api:
        with pytest.raises(Unanswered) as read:
            await api.cluster_uid()
        assert read.value.reason == reason
        with pytest.raises(Unanswered) as watched:
            async for _ in api.watch(PODS, "1", last_s=5, watch_idle_timeout_s=5):
                pass
        assert watched.value.reason == reason
        assert str(watched.value).startswith("GET /api/v1/pods?watch=1")


async def test_a_certificate_of_another_authority_is_named_as_such(tmp_path: Path) -> None:
    """Both by the pool of short requests and by watches; a fault of TLS has no number of the system."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with KubeApi(str(kubeconfig(tmp_path, url, trustme.CA()))) as api:
            for request in (api.cluster_uid(), anext(api.watch(PODS, "1", last_s=5, watch_idle_timeout_s=5))):
                with pytest.raises(Unanswered) as raised:
                    await request
                assert raised.value.reason.startswith("the server's certificate is not accepted: ")
                assert raised.value.reason.endswith("(CERTIFICATE_VERIFY_FAILED)")


async def test_a_server_that_speaks_no_tls_is_named_as_such(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with KubeApi(str(kubeconfig(tmp_path, url, trustme.CA()))) as api:
            with pytest.raises(Unanswered) as raised:
                await api.cluster_uid()
    assert raised.value.reason.startswith("TLS failed: ")


@pytest.mark.parametrize(("accepts", "error"), [(True, IdleWatch), (False, Unanswered)])
async def test_a_watch_that_was_accepted_and_is_idle_is_no_failure_of_the_connection(
    accepts: bool, error: type[Exception], tmp_path: Path
) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if accepts:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with KubeApi(str(kubeconfig(tmp_path, url, authority))) as api:
            with pytest.raises(error):
                async for _ in api.watch(PODS, "1", last_s=60, watch_idle_timeout_s=0.2):
                    pass


def test_a_time_out_has_no_text_of_its_own() -> None:
    assert connection_fault(TimeoutError()) == "no response in time"
