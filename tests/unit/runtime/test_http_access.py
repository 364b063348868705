"""The callers that a service's HTTP port admits, on real ports of loopback."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cli.credentials.pki import Authority
from cli.processes.free_ports import free_port
from shared.runtime.http_access import Access, NoAuthentication
from shared.runtime.http_server import Ports, for_leaders, json_response, listening


@asynccontextmanager
async def serving(access: Access, folder: Path, *, tls: bool = False) -> AsyncIterator[str]:
    """Serves one route; yields its address."""
    application = for_leaders(lambda: True)

    async def answer(_: web.Request) -> web.Response:
        return json_response("admitted")

    application.add_routes([web.get("/x", answer)])
    address = f"127.0.0.1:{free_port()}"
    if tls:
        Authority(folder).serve(folder / "server", ())
        certificate, key = str(folder / "server" / "server.crt"), str(folder / "server" / "server.key")
        ports = Ports("KOORD_X_", address, "", certificate, key, access)
    else:
        ports = Ports("KOORD_X_", "", address, "", "", access)
    async with listening(application, ports):
        yield f"http{'s' if tls else ''}://{address}"


async def status(url: str, *, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None) -> int:
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(url, ssl=True if tls is None else tls) as response,
    ):
        return response.status


def client(folder: Path, name: str = "", authority: Path | None = None) -> ssl.SSLContext:
    """A client that trusts the server of `folder`, with a certificate of this name by an authority, if it has one."""
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    if name:
        file = folder / f"{name}.pem"
        file.write_bytes(issued(authority or folder, name))
        context.load_cert_chain(file)
    return context


def issued(authority: Path, name: str) -> bytes:
    """A client's certificate with its key."""
    authority.mkdir(exist_ok=True)
    Authority(authority)
    signing = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    own = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(own.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(own.not_valid_before_utc)
        .not_valid_after(own.not_valid_after_utc)
        .sign(signing, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem) + private


async def test_without_credentials_a_port_of_loopback_is_open(tmp_path: Path) -> None:
    async with serving(Access(), tmp_path) as url:
        assert await status(f"{url}/x") == 200


async def test_a_token_admits_as_a_bearer_or_as_the_password_of_an_address_and_another_does_not(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("old\n\nnew\n")
    async with serving(Access(token_file=str(tokens)), tmp_path) as url:
        for offered, expected in (("Bearer new", 200), ("Bearer old", 200), ("Bearer ne", 401), ("Bearer ", 401)):
            assert await status(f"{url}/x", headers={"Authorization": offered}) == expected, offered
        assert await status(f"{url}/x") == 401
        assert await status(f"{url.replace('://', '://any:new@')}/x") == 200, "as kube-scheduler sends it"
        assert await status(f"{url}/x", headers={"Authorization": "Basic !"}) == 401
        assert await status(f"{url}/healthz") == 200, "probes have no token"
        tokens.write_text("newest\n")
        assert await status(f"{url}/x", headers={"Authorization": "Bearer old"}) == 401, "replaced without a restart"
        tokens.unlink()
        assert await status(f"{url}/x", headers={"Authorization": "Bearer "}) == 401


async def test_a_certificate_of_the_authority_admits(tmp_path: Path) -> None:
    Authority(tmp_path)
    access = Access(client_ca=str(tmp_path / "ca.crt"), client_names=("kube-scheduler",))
    async with serving(access, tmp_path, tls=True) as url:
        assert await status(f"{url}/x", tls=client(tmp_path, "kube-scheduler")) == 200
        assert await status(f"{url}/x", tls=client(tmp_path, "kubelet")) == 401, "not by its name"
        assert await status(f"{url}/x", tls=client(tmp_path)) == 401
        with pytest.raises(aiohttp.ClientError):
            await status(f"{url}/x", tls=client(tmp_path, "kube-scheduler", tmp_path / "other"))


@pytest.mark.parametrize("address", ["0.0.0.0:1", ":1", "10.0.0.7:1", "[::]:1"])
def test_a_port_beyond_loopback_is_not_open_unless_an_operator_allows_it(address: str) -> None:
    with pytest.raises(NoAuthentication, match="KOORD_X_TOKEN_FILE"):
        Access().check("KOORD_X_", (address,))
    Access(allow_anonymous=True).check("KOORD_X_", (address,))
    Access(client_ca="ca.crt").check("KOORD_X_", (address,))


def test_a_file_without_tokens_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("\n")
    for name in ("tokens", "missing"):
        with pytest.raises(NoAuthentication, match="no token"):
            Access(token_file=str(tmp_path / name)).check("KOORD_X_", ("127.0.0.1:1",))
