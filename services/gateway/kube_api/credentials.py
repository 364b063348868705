"""Who we are to the API server, and the connections that follow from it: kubeconfig or service account, TLS, proxy, token.

Read anew when the server answers 401 (an expired token, certificate or exec credential) or TLS fails, so that rotation needs
no restart.
"""

import asyncio
import ssl
from typing import Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration

from services.gateway.kube_api.http_pool import Channels
from services.gateway.kube_api.session_sockets import Sockets
from shared.errors import KoordError

READ_BUFFER_BYTES = 2**18
"""Read ahead on each connection; longer lines are put together by the watch, so this bounds memory, not objects."""


class NoCluster(KoordError):
    """There is no usable kubeconfig, and this is not a pod with a service account."""


class Credentials:
    """Sessions for the API server, renewed when the credentials are.

    Attributes:
        host: the API server's address.
        server_hostname: the name to verify the server's certificate against, when it is not the host's.
        generation: grows with each renewal; a caller that was refused says which one it used.
    """

    host: str
    server_hostname: str | None = None
    generation: int = 0
    _configuration: Configuration
    _session: aiohttp.ClientSession
    _channels: Channels | None = None

    def __init__(self, kubeconfig: str, linger_s: float = 60) -> None:
        """Remember where to read from.

        Args:
            kubeconfig: path of a kubeconfig; empty means the pod's service account.
            linger_s: how long a session outlives its renewal, for requests that are under way.
        """
        self._kubeconfig = kubeconfig
        self._linger_s = linger_s
        self._renewing = asyncio.Lock()
        self._sockets = Sockets()
        self._old: dict[asyncio.Task[None], aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        await self._load()
        return self

    async def __aexit__(self, *_: object) -> None:
        sessions = [self._session, *self._old.values()]
        for task in self._old:
            task.cancel()
        if self._channels:
            self._channels.close()
        for session in sessions:
            await session.close()
        await self._sockets.close()

    async def headers(self) -> dict[str, str]:
        """What says who we are."""
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        return {"Authorization": token.strip()} if token else {}

    @property
    def session(self) -> aiohttp.ClientSession:
        """For long requests, and all that go through a proxy."""
        return self._session

    @property
    def channels(self) -> Channels | None:
        """For short requests; None when there is a proxy."""
        return self._channels

    async def renew(self, generation: int) -> None:
        """Read the credentials again, unless that was done since `generation` was handed out.

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
            place = f"kubeconfig {self._kubeconfig}" if self._kubeconfig else "the pod's service account"
            raise NoCluster(f"{place}: {error}; set KOORD_GATEWAY_KUBECONFIG to a file that kubectl accepts") from error
        self._configuration = configuration
        self.host = str(configuration.host).rstrip("/")
        self.server_hostname = configuration.tls_server_name
        proxy = configuration.proxy or _environment_proxy(self.host)
        if self._channels:
            self._channels.close()
        self._channels = None if proxy else Channels(self.host, tls, self.server_hostname)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls or True, socket_factory=self._sockets.make),
            proxy=proxy,
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "koordstream-gateway"},
        )


def _tls(configuration: Configuration) -> ssl.SSLContext:
    """What the kubeconfig says of certificates."""
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _environment_proxy(host: str) -> str | None:
    """The proxy that the environment names for this host."""
    parts = urlsplit(host)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
