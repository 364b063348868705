"""Expired and replaced credentials (token, service account, certificate): requests continue without a restart."""

import asyncio
import base64
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from cli.dev.kubeconfig import write_kubeconfig
from cli.dev.local_control_plane import Cluster
from cli.dev.pki import Authority
from services.gateway.kube_api.api_errors import Busy
from services.gateway.kube_api.authenticated_connections import NoCluster
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.decoding import decoder_of
from services.gateway.kube_api.resources import NODES, PODS
from tests.integration.gateway.conftest import ACCOUNT, MakePod
from tests.integration.gateway.fault_proxy import FaultProxy
from tests.integration.gateway.watch_recorder import watching
from tests.support.waiting import until


def expired(cluster: Cluster, token: str) -> str:
    """Returns the same token with an expiry in the past, signed with the API server's key."""
    head, claims, _ = token.split(".")
    body = msgspec.json.decode(base64.urlsafe_b64decode(claims + "=="), type=dict[str, Any])
    now = int(time.time())
    body |= {"iat": now - 7200, "nbf": now - 7200, "exp": now - 3600}
    signed = f"{head}.{base64.urlsafe_b64encode(msgspec.json.encode(body)).decode().rstrip('=')}"
    key = serialization.load_pem_private_key((cluster.folder / "pki" / "service-accounts.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def write(path: Path, cluster: Cluster, url: str, token: str) -> None:
    write_kubeconfig(path, url=url, ca=cluster.ca_file.read_bytes(), user="gateway", credentials=token)


async def nodes(api: KubeApi) -> int:
    return len((await api.page(NODES, decoder_of("nodes"), limit=1)).items)


async def test_an_expired_token_is_read_again_and_the_request_repeated(
    cluster: Cluster, proxy: FaultProxy, tmp_path: Path
) -> None:
    path, good = tmp_path / "kubeconfig", cluster.service_account_token(*ACCOUNT)
    write(path, cluster, proxy.url, expired(cluster, good))
    async with KubeApi(str(path)) as api:
        with pytest.raises(Busy, match="401"):
            await nodes(api)
        assert proxy.count("GET", "nodes") == 2  # the second one with the new content of the file
        write(path, cluster, proxy.url, good)
        await asyncio.gather(*(nodes(api) for _ in range(10)))  # refused together, renewed once


async def test_a_watch_continues_after_the_token_expired(
    cluster: Cluster, proxy: FaultProxy, tmp_path: Path, make_pod: MakePod, namespace: str
) -> None:
    path, good = tmp_path / "kubeconfig", cluster.service_account_token(*ACCOUNT)
    write(path, cluster, proxy.url, good)
    async with KubeApi(str(path)) as api, watching(api, PODS._replace(namespace=namespace)) as sink:
        await until(lambda: sink.lists and proxy.count("GET", "watch=1"))
        api._connections._configuration.api_key["BearerToken"] = f"Bearer {expired(cluster, good)}"
        proxy.cut()
        make_pod("web")
        await until(lambda: f"{namespace}/web" in sink.objects)
        assert len(sink.lists) == 1


async def test_a_replaced_client_certificate_is_used(cluster: Cluster, tmp_path: Path) -> None:
    """The first certificate is signed by another cluster's authority: the real server answers 401."""
    path, stranger = tmp_path / "kubeconfig", tmp_path / "stranger"
    wrong = Authority.load_or_create(stranger).issue("gateway")
    ca = cluster.ca_file.read_bytes()
    write_kubeconfig(path, url=cluster.url, ca=ca, user="gateway", credentials=wrong)
    async with KubeApi(str(path)) as api:
        with pytest.raises(Busy, match="401"):
            await nodes(api)
        path.write_bytes(cluster.kubeconfig().read_bytes())
        await nodes(api)


async def test_a_server_with_a_foreign_certificate_gets_no_request(cluster: Cluster, tmp_path: Path) -> None:
    path, stranger = tmp_path / "kubeconfig", tmp_path / "stranger"
    ca = Authority.load_or_create(stranger).pem
    token = cluster.service_account_token(*ACCOUNT)
    write_kubeconfig(path, url=cluster.url, ca=ca, user="gateway", credentials=token)
    async with KubeApi(str(path)) as api:
        with pytest.raises(Busy, match="CERTIFICATE_VERIFY_FAILED"):
            await nodes(api)
        write(path, cluster, cluster.url, token)  # the authority was rotated and the file follows
        await nodes(api)


async def test_without_credentials_the_error_names_the_setting(tmp_path: Path) -> None:
    for kubeconfig in ("", str(tmp_path / "absent")):
        with pytest.raises(NoCluster, match="KOORD_GATEWAY_KUBECONFIG"):
            async with KubeApi(kubeconfig):
                pass


async def test_a_proxy_of_the_kubeconfig_is_used(
    cluster: Cluster, proxy: FaultProxy, tmp_path: Path, make_pod: MakePod, namespace: str
) -> None:
    """The server's name is resolved by the proxy only."""
    path = tmp_path / "kubeconfig"
    write(path, cluster, "http://kubernetes.invalid", cluster.service_account_token(*ACCOUNT))
    path.write_text(path.read_text().replace("server: ", f"proxy-url: {proxy.url}\n    server: "))
    async with KubeApi(str(path)) as api, watching(api, PODS._replace(namespace=namespace)) as sink:
        await until(lambda: sink.lists)
        pod = make_pod("web")
        await until(lambda: f"{namespace}/web" in sink.objects)
        await api.create_binding(f"{namespace}/web", uid=pod["metadata"]["uid"], node="anywhere")
        assert proxy.count("POST", "/binding") == 1
