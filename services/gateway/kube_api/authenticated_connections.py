"""Connections to the API server and their credentials: kubeconfig or service account, TLS, proxy, token.

Credentials are read again when the server answers 401 (an expired token, certificate or exec credential) or TLS fails,
so a rotation needs no restart.
"""

import asyncio
import ssl
from typing import Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration

from services.gateway.kube_api.close_sockets_that_outlive_session import LingeringSockets
from services.gateway.kube_api.http_pool import HttpPool
from services.gateway.kube_api.kubeconfig_faults import kubeconfig_fault
from shared.errors import KoordError

READ_BUFFER_BYTES = 2**18
"""Read-ahead of each connection. The watch joins longer lines, so this bounds memory, not the size of objects."""


class NoCluster(KoordError):
    """No usable kubeconfig, and no service account of a pod."""


class Connections:
    """Connections to the API server, made anew when the credentials are renewed.

    Attributes:
        host: the API server's address.
        server_hostname: the name that the server's certificate must have, when it is not the host's.
        generation: number of renewals; a caller that was refused passes the one that it used.
    """

    host: str
    server_hostname: str | None = None
    generation: int = 0
    _configuration: Configuration
    _session: aiohttp.ClientSession
    _http_pool: HttpPool | None = None

    def __init__(self, kubeconfig: str, linger_s: float = 60) -> None:
        """Sets the source; the credentials are read on entry.

        Args:
            kubeconfig: path of a kubeconfig; empty means the pod's service account.
            linger_s: how long a session outlives its renewal, for requests that are under way.
        """
        self._kubeconfig = kubeconfig
        self._linger_s = linger_s
        self._renewing = asyncio.Lock()
        self._sockets = LingeringSockets()
        self._old: dict[asyncio.Task[None], aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        await self._load()
        return self

    async def __aexit__(self, *_: object) -> None:
        sessions = [self._session, *self._old.values()]
        for task in self._old:
            task.cancel()
        if self._http_pool:
            self._http_pool.close()
        for session in sessions:
            await session.close()
        await self._sockets.close()

    async def headers(self) -> dict[str, str]:
        """Returns the header that authenticates a request; none when a client certificate does."""
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        return {"Authorization": token.strip()} if token else {}

    @property
    def session(self) -> aiohttp.ClientSession:
        """Returns the session for watches, and for all requests when there is a proxy."""
        return self._session

    @property
    def http_pool(self) -> HttpPool | None:
        """Returns the connections for short requests; None when there is a proxy."""
        return self._http_pool

    async def renew(self, generation: int) -> None:
        """Reads the credentials again, unless that has happened since `generation`.

        Raises:
            NoCluster: they cannot be read.
        """
        async with self._renewing:
            if generation != self.generation:
                return
            old = self._session
            await self._load()
            self.generation += 1
            task = asyncio.create_task(self._close_later(old))
            self._old[task] = old
            task.add_done_callback(self._old.pop)

    async def _close_later(self, session: aiohttp.ClientSession) -> None:
        await asyncio.sleep(self._linger_s)
        await session.close()

    async def _load(self) -> None:
        configuration = Configuration()
        try:
            if self._kubeconfig:
                await config.load_kube_config(
                    self._kubeconfig, client_configuration=configuration, persist_config=False
                )
            else:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            tls = _tls(configuration) if str(configuration.host).startswith("https:") else None
        except Exception as error:
            source = f"kubeconfig {self._kubeconfig}" if self._kubeconfig else "the pod's service account"
            fault = kubeconfig_fault(self._kubeconfig) if self._kubeconfig else ""
            raise NoCluster(
                f"{source} cannot be used: {fault or ' '.join(str(error).split())}; correct it, or name a file that "
                "kubectl accepts, with `--kubeconfig` or in KOORD_GATEWAY_KUBECONFIG"
            ) from error
        self._configuration = configuration
        self.host = str(configuration.host).rstrip("/")
        self.server_hostname = configuration.tls_server_name
        proxy = configuration.proxy or _environment_proxy(self.host)
        if self._http_pool:
            self._http_pool.close()
        self._http_pool = None if proxy else HttpPool(self.host, tls, self.server_hostname)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls or True, socket_factory=self._sockets.make),
            proxy=proxy,
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "koordstream-gateway"},
        )


def _tls(configuration: Configuration) -> ssl.SSLContext:
    """Returns the TLS context of a kubeconfig."""
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _environment_proxy(host: str) -> str | None:
    """Returns the proxy that the environment variables name for this host."""
    parts = urlsplit(host)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
