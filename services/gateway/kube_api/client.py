"""Client of the Kubernetes API: requests, decoded objects, and refusals as the errors of api_errors.py.

`kubernetes_asyncio` reads the credentials; its generated models are not used. Short requests go through http_pool.py,
watches through aiohttp.
"""

import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

import aiohttp
import msgspec
from yarl import URL

from services.gateway.kube_api.api_errors import Ambiguous, Busy, Conflict, IdleWatch, NotFound, Unanswered, api_error
from services.gateway.kube_api.authenticated_connections import Connections, NoCluster
from services.gateway.kube_api.connection_error_text import connection_fault
from services.gateway.kube_api.decoding import ApiObject, Decoder, ListPage, Unreadable, decoder_of
from services.gateway.kube_api.http_pool import NeverSent
from services.gateway.kube_api.resources import EVENTS, NAMESPACES, PODS, Resource
from services.gateway.kube_api.unused_field_removal import ObservedObject, keep_fields
from shared.errors import KoordError

MANAGER = "koordstream"
"""Field manager of this system's writes, recorded by the API in `managedFields`."""

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"  # JSON is YAML
JSON = "application/json"

_SYSTEM_NAMESPACE = "kube-system"

_BAD_TLS = (ssl.SSLError, aiohttp.ClientSSLError)
_NEVER_SENT = (NeverSent, *_BAD_TLS, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class WriteInShadow(KoordError):
    """A write in shadow mode, where nothing may be written: a programming error that ends the process."""

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{method} {path} in shadow mode: nothing was sent")


class KubeApi:
    """Client of one API server. Use as an async context manager."""

    def __init__(
        self,
        kubeconfig: str = "",
        *,
        timeout_s: float = 10,
        read_only: bool = False,
        connections: Connections | None = None,
    ) -> None:
        """Sets the address and the limits; connections are opened later.

        Args:
            kubeconfig: path of a kubeconfig; empty means the pod's service account.
            timeout_s: a request without its whole response after this time counts as unanswered.
            read_only: refuse every request but GET.
            connections: used instead of the kubeconfig's.
        """
        self._read_only = read_only
        self._connections = connections or Connections(kubeconfig)
        self._timeout_s = timeout_s
        self._open = AsyncExitStack()
        self._answered_s = time.monotonic()
        self._permits_writes: Callable[[], bool] = lambda: True
        self._lease_path = ""

    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(self._connections)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    @property
    def server(self) -> str:
        """Returns the address of the API server."""
        return self._connections.host

    @property
    def silent_s(self) -> float:
        """Returns the seconds since the API server last sent anything; since the start, if it has not yet."""
        return time.monotonic() - self._answered_s

    def hold_writes(self, permits: Callable[[], bool], lease_path: str) -> None:
        """Sends no write from now on while `permits` returns False, but for those of the Lease.

        Compared for each request: the tries of an effect may outlast the Lease under which it began.
        """
        self._permits_writes, self._lease_path = permits, lease_path

    async def call(self, method: str, path: str, rule: str, body: object = None, content_type: str = JSON) -> bytes:
        """Sends one request and returns the body of the response.

        Args:
            method: of HTTP.
            path: with its query, percent-encoded.
            rule: the RBAC rule that the request needs, as `verb resource`.
            body: any value that JSON can encode.
            content_type: of the body.

        Raises:
            ApiError: one of api_errors.py; `Ambiguous` for a write that may have been done, `Busy` for a held one.
            WriteInShadow: the request would write, and the client is read-only.
        """
        if self._read_only and method != "GET":
            raise WriteInShadow(method, path)
        data = None if body is None else msgspec.json.encode(body)
        # A second try with renewed credentials: a token or certificate may have been rotated since they were read.
        for last in (False, True):
            generation = self._connections.generation
            headers = await self._connections.headers()
            if data is not None:
                headers["Content-Type"] = content_type
            if method != "GET" and not self._permits_writes() and not path.startswith(self._lease_path):
                raise Busy(f"{method} {path} is not sent: the Lease has expired, and another system may have taken it")
            try:
                status, response = await self._exchange(method, path, headers, data)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if last or not isinstance(error, _BAD_TLS):
                    raise _unanswered(method, path, error) from error
            else:
                self._answered_s = time.monotonic()
                if status < 400:
                    return response
                if last or status != 401:
                    raise api_error(status, response, f"{method} {path}", rule)
            await self._renew(generation)
        raise AssertionError("the second try returns or raises")

    async def _exchange(self, method: str, path: str, headers: dict[str, str], data: bytes | None) -> tuple[int, bytes]:
        """Sends one request and returns status and body."""
        connections = self._connections
        if connections.http_pool:
            return await connections.http_pool.request(method, path, headers, data, self._timeout_s)
        async with connections.session.request(
            method,
            URL(connections.host + path, encoded=True),
            data=data,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            server_hostname=connections.server_hostname,
        ) as response:
            return response.status, await response.read()

    async def _renew(self, generation: int) -> None:
        try:
            await self._connections.renew(generation)
        except NoCluster as error:
            # The kubeconfig may be unreadable for a moment, while it is being rewritten.
            raise Busy(str(error)) from error

    # -- reading

    async def page(
        self, resource: Resource, decoder: Decoder, limit: int, token: str = ""
    ) -> ListPage[ApiObject | Unreadable]:
        """Returns one page of the resource's list; `token` continues where the previous page ended.

        Raises:
            Expired: the token is too old; the list must begin anew.
            NotFound: the resource is not installed.
        """
        continuation = f"&continue={token}" if token else ""
        path = f"{resource.watched_path}?limit={limit}{continuation}"
        data = await self.call("GET", path, f"list {resource.name}")
        try:
            return decoder.page(data)
        except msgspec.DecodeError as error:
            raise Busy(f"GET {path}: the response is no list: {error}") from error

    async def cluster_uid(self) -> str:
        """Reads the UID of the namespace kube-system, which identifies the cluster.

        Raises:
            ApiError: it cannot be read, or does not exist yet.
        """
        # A list of one object needs no rule besides those of the watches.
        path = f"{NAMESPACES.collection()}?fieldSelector=metadata.name%3D{_SYSTEM_NAMESPACE}"
        data = await self.call("GET", path, f"list {NAMESPACES.name}")
        try:
            found = decoder_of(NAMESPACES.name).page(data).items
        except msgspec.DecodeError as error:
            raise Busy(f"GET {path}: the response is no list: {error}") from error
        for item in found:
            if isinstance(item, dict) and item["metadata"].get("name") == _SYSTEM_NAMESPACE:
                return str(item["metadata"]["uid"])
        raise Busy(f"GET {path}: the cluster has no namespace {_SYSTEM_NAMESPACE} yet")

    async def watch(
        self, resource: Resource, version: str, *, last_s: int, watch_idle_timeout_s: float
    ) -> AsyncIterator[list[bytes]]:
        """Yields the lines of a watch, as many at once as have arrived; first none, when the server has accepted it.
        Ends when the server ends the watch.

        Args:
            version: the resourceVersion after which to begin.
            last_s: duration that is requested of the server (`timeoutSeconds`).
            watch_idle_timeout_s: a connection without a byte for this long is ended; bookmarks arrive about each
                minute, where the resource has changed since the API server's start.

        Raises:
            Expired: the version is too old.
            IdleWatch: the server accepted the watch, and the connection was idle too long.
            Busy: no connection, or it was lost.
        """
        query = f"watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={last_s}"
        path = f"{resource.watched_path}?{query}"
        generation = self._connections.generation
        timeout = aiohttp.ClientTimeout(
            total=last_s + watch_idle_timeout_s, sock_connect=self._timeout_s, sock_read=watch_idle_timeout_s
        )
        accepted = False
        try:
            async with self._connections.session.get(
                URL(self._connections.host + path, encoded=True),
                headers=await self._connections.headers(),
                timeout=timeout,
                server_hostname=self._connections.server_hostname,
            ) as response:
                if response.status >= 400:
                    if response.status == 401:
                        await self._renew(generation)
                    raise api_error(response.status, await response.read(), f"GET {path}", f"watch {resource.name}")
                # A line may arrive in several chunks: `parts` holds those of the line that is not complete yet.
                parts: list[bytes] = []
                accepted = True
                yield []
                while chunk := await response.content.readany():
                    self._answered_s = time.monotonic()
                    head, newline, rest = chunk.rpartition(b"\n")
                    if not newline:
                        parts.append(chunk)
                        continue
                    parts.append(head)
                    yield b"".join(parts).split(b"\n")
                    parts = [rest] if rest else []
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error, _BAD_TLS):
                await self._renew(generation)
            if accepted and isinstance(error, TimeoutError):
                raise IdleWatch(f"GET {path}: nothing for {watch_idle_timeout_s:g} s") from error
            raise _unanswered("GET", path, error) from error

    async def find(self, resource: Resource, key: str) -> ObservedObject | None:
        """Reads the object; None when it does not exist.

        Raises:
            ApiError: anything but 404.
        """
        try:
            data = await self.call("GET", resource.path(key), f"get {resource.name}")
        except NotFound:
            return None
        return _object(resource, key, data)

    # -- writing

    async def create_binding(
        self, pod: str, *, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Binds the pod with that uid to the node, and sets the annotations in the same write."""
        namespace, _, name = pod.rpartition("/")
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid}
        if annotations:
            # The server copies a Binding's annotations onto the pod.
            metadata["annotations"] = dict(annotations)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.call("POST", f"{PODS.path(pod)}/binding", "create pods/binding", body)

    async def evict(self, pod: str, *, uid: str, grace_period_s: int | None) -> None:
        """Evicts the pod with that uid, if its disruption budget allows it."""
        namespace, _, name = pod.rpartition("/")
        options: dict[str, Any] = {"preconditions": {"uid": uid}}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        await self.call("POST", f"{PODS.path(pod)}/eviction", "create pods/eviction", body)

    async def patch(
        self, resource: Resource, key: str, body: dict[str, Any], *, subresource: str = "", how: str = MERGE
    ) -> ObservedObject:
        """Changes an existing object, or with `APPLY` also creates it; returns the object after the write."""
        part = f"/{subresource}" if subresource else ""
        query = f"?fieldManager={MANAGER}" + ("&force=true" if how == APPLY else "")
        path = f"{resource.path(key)}{part}{query}"
        data = await self.call("PATCH", path, f"patch {resource.name}{part}", body, how)
        return _object(resource, key, data)

    async def delete(self, resource: Resource, key: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
        """Deletes the object; with a uid only if the object has it."""
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace_period_s is not None:
            body["gracePeriodSeconds"] = grace_period_s
        await self.call("DELETE", resource.path(key), f"delete {resource.name}", body)

    async def record_event(self, namespace: str, body: dict[str, Any], repeated: dict[str, Any]) -> None:
        """Creates a Kubernetes Event, or patches an existing one with `repeated` (its count and last time)."""
        query = f"?fieldManager={MANAGER}"
        collection, name = EVENTS.collection(namespace), body["metadata"]["name"]
        try:
            await self.call("POST", collection + query, "create events", body)
        except Conflict:
            await self.call("PATCH", f"{collection}/{name}{query}", "patch events", repeated, MERGE)


def _unanswered(method: str, path: str, error: Exception) -> Unanswered | Ambiguous:
    """Returns the error for a request without a response: one that was never sent, or only reads, changed nothing."""
    request, reason = f"{method} {path}", connection_fault(error)
    never_sent = isinstance(error, _NEVER_SENT)
    return Unanswered(request, reason) if never_sent or method == "GET" else Ambiguous(f"{request}: {reason}")


def _object(resource: Resource, key: str, data: bytes) -> ObservedObject:
    try:
        found = decoder_of(resource.name).object(data)
    except msgspec.DecodeError as error:
        raise Busy(f"{resource.name} {key}: the response is no object: {error}") from error
    if isinstance(found, Unreadable):
        raise Busy(f"{resource.name} {key} cannot be read: {found.error}")
    return keep_fields(resource, found)
