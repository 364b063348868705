"""Who we are to the API server, and the connections that follow from it: kubeconfig or service account, TLS, proxy, token.

Read anew when the server answers 401 (an expired token, certificate or exec credential) or TLS fails, so that rotation needs
no restart.
"""

import asyncio
from typing import Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.client.rest import RESTClientObject

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

    def __init__(self, kubeconfig: str, linger_s: float = 60) -> None:
        """Remember where to read from.

        Args:
            kubeconfig: path of a kubeconfig; empty means the pod's service account.
            linger_s: how long a session outlives its renewal, for requests that are under way.
        """
        self._kubeconfig = kubeconfig
        self._linger_s = linger_s
        self._renewing = asyncio.Lock()
        self._old: dict[asyncio.Task[None], aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        await self._load()
        return self

    async def __aexit__(self, *_: object) -> None:
        sessions = [self._session, *self._old.values()]
        for task in self._old:
            task.cancel()
        for session in sessions:
            await session.close()

    async def session(self) -> tuple[aiohttp.ClientSession, dict[str, str], int]:
        """The session to use now, the headers that say who we are, and the generation of both."""
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        return self._session, {"Authorization": token.strip()} if token else {}, self.generation

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
        configuration.connection_pool_maxsize = 0  # effects are bounded by their own slots, watches by their number
        try:
            if self._kubeconfig:
                await config.load_kube_config(
                    self._kubeconfig, client_configuration=configuration, persist_config=False
                )
            else:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except Exception as error:
            place = f"kubeconfig {self._kubeconfig}" if self._kubeconfig else "the pod's service account"
            raise NoCluster(f"{place}: {error}; set KOORD_GATEWAY_KUBECONFIG to a file that kubectl accepts") from error
        self._configuration = configuration
        self.host = str(configuration.host).rstrip("/")
        self.server_hostname = configuration.tls_server_name
        # The library's connector, with its TLS; its session would look for a proxy and a netrc file at each request.
        library = RESTClientObject(configuration)
        self._session = aiohttp.ClientSession(
            connector=library.pool_manager.connector,
            proxy=configuration.proxy or _environment_proxy(self.host),
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "koordstream-gateway"},
        )
        library.pool_manager.detach()


def _environment_proxy(host: str) -> str | None:
    """The proxy that the environment names for this host."""
    parts = urlsplit(host)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
