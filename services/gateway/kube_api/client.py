"""Requests to the Kubernetes API: bytes out, decoded objects in, every refusal as one of problems.py.

Kubernetes_asyncio reads the credentials; no generated model is built. Short requests go by channel.py, watches by aiohttp.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

import aiohttp
import msgspec
from yarl import URL

from services.gateway.kube_api.api_errors import Ambiguous, Busy, Conflict, NotFound, problem
from services.gateway.kube_api.api_types import Decoder, Page, Unreadable, Wire, decoder_of
from services.gateway.kube_api.credentials import Credentials, NoCluster
from services.gateway.kube_api.http_pool import NeverSent
from services.gateway.kube_api.resources import EVENTS, PODS, Resource
from services.gateway.watch.field_filter import Seen, see
from shared.errors import KoordError

MANAGER = "koordstream"
"""Our field manager: what the API's managedFields call us."""

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"  # JSON is YAML
JSON = "application/json"

_BAD_TLS = (ssl.SSLError, aiohttp.ClientSSLError)
_NEVER_SENT = (NeverSent, *_BAD_TLS, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class WriteInShadow(KoordError):
    """A request that would change something, where nothing may be written: the code is wrong, so the process ends."""

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{method} {path} in shadow mode: nothing was sent")


class KubeApi:
    """The API server as the gateway uses it. Use as an async context manager."""

    def __init__(self, kubeconfig: str = "", *, timeout_s: float = 10, read_only: bool = False) -> None:
        """Remember how to reach it.

        Args:
            kubeconfig: path of a kubeconfig; empty means the pod's service account.
            timeout_s: after how long without the whole answer a request counts as unanswered.
            read_only: let nothing but GET leave this process, whatever asks for it.
        """
        self._read_only = read_only
        self._credentials = Credentials(kubeconfig)
        self._timeout_s = timeout_s
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(self._credentials)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def call(self, method: str, path: str, rule: str, body: object = None, content_type: str = JSON) -> bytes:
        """Send one request and return the answer's body.

        Args:
            method: of HTTP.
            path: with its query, percent-encoded.
            rule: the RBAC rule that it needs, as `verb resource`.
            body: anything that JSON can say.
            content_type: of the body.

        Raises:
            ApiProblem: one of problems.py; `Ambiguous` for a write that may have been done.
            WriteInShadow: it would write, and this is read-only.
        """
        if self._read_only and method != "GET":
            raise WriteInShadow(method, path)
        data = None if body is None else msgspec.json.encode(body)
        for last in (False, True):
            generation = self._credentials.generation
            headers = await self._credentials.headers()
            if data is not None:
                headers["Content-Type"] = content_type
            try:
                status, answer = await self._exchange(method, path, headers, data)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if last or not isinstance(error, _BAD_TLS):
                    raise _unanswered(method, path, error) from error
            else:
                if status < 400:
                    return answer
                if last or status != 401:
                    raise problem(status, answer, f"{method} {path}", rule)
            await self._renew(generation)
        raise AssertionError("the second try returns or raises")

    async def _exchange(self, method: str, path: str, headers: dict[str, str], data: bytes | None) -> tuple[int, bytes]:
        """One request and its answer, whatever it says."""
        credentials = self._credentials
        if credentials.channels:
            return await credentials.channels.request(method, path, headers, data, self._timeout_s)
        async with credentials.session.request(
            method,
            URL(credentials.host + path, encoded=True),
            data=data,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            server_hostname=credentials.server_hostname,
        ) as response:
            return response.status, await response.read()

    async def _renew(self, generation: int) -> None:
        try:
            await self._credentials.renew(generation)
        except NoCluster as error:  # being rewritten at this moment, perhaps
            raise Busy(str(error)) from error

    # -- reading

    async def page(self, resource: Resource, decoder: Decoder, limit: int, token: str = "") -> Page[Wire | Unreadable]:
        """One page of the resource's list; `token` continues where the page before ended.

        Raises:
            Expired: the token is too old; the list must begin anew.
            NotFound: the resource is not installed.
        """
        more = f"&continue={token}" if token else ""
        path = f"{resource.followed}?limit={limit}{more}"
        data = await self.call("GET", path, f"list {resource.name}")
        try:
            return decoder.page(data)
        except msgspec.DecodeError as error:
            raise Busy(f"GET {path}: the answer is no list: {error}") from error

    async def watch(
        self, resource: Resource, version: str, *, last_s: int, watch_idle_timeout_s: float
    ) -> AsyncIterator[list[bytes]]:
        """Lines of a watch, as many at once as have arrived. Ends when the server ends it.

        Args:
            version: the resourceVersion after which to begin.
            last_s: after how long the server is asked to end it.
            watch_idle_timeout_s: after how long without a byte the connection counts as dead; bookmarks come about each minute.

        Raises:
            Expired: the version is too old.
            Busy: the connection was lost, or was silent too long.
        """
        query = f"watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={last_s}"
        path = f"{resource.followed}?{query}"
        generation = self._credentials.generation
        timeout = aiohttp.ClientTimeout(
            total=last_s + watch_idle_timeout_s, sock_connect=watch_idle_timeout_s, sock_read=watch_idle_timeout_s
        )
        try:
            async with self._credentials.session.get(
                URL(self._credentials.host + path, encoded=True),
                headers=await self._credentials.headers(),
                timeout=timeout,
                server_hostname=self._credentials.server_hostname,
            ) as response:
                if response.status >= 400:
                    if response.status == 401:
                        await self._renew(generation)
                    raise problem(response.status, await response.read(), f"GET {path}", f"watch {resource.name}")
                parts: list[bytes] = []
                while chunk := await response.content.readany():
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
            raise _unanswered("GET", path, error) from error

    async def find(self, resource: Resource, key: str) -> Seen | None:
        """The object as it is now, or None when it is gone.

        Raises:
            ApiProblem: anything but 404.
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
        """Give the pod its node, and the annotations with it, if it is the pod with that uid."""
        namespace, _, name = pod.rpartition("/")
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid}
        if annotations:
            metadata["annotations"] = dict(annotations)  # the server copies them onto the pod in the same write
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.call("POST", f"{PODS.path(pod)}/binding", "create pods/binding", body)

    async def evict(self, pod: str, *, uid: str, grace_period_s: int | None) -> None:
        """Ask that the pod goes away, if it is the pod with that uid and its disruption budget allows it."""
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
    ) -> Seen:
        """Change an existing object, or (with `APPLY`) make it; returns it as it is afterwards."""
        part = f"/{subresource}" if subresource else ""
        query = f"?fieldManager={MANAGER}" + ("&force=true" if how == APPLY else "")
        path = f"{resource.path(key)}{part}{query}"
        data = await self.call("PATCH", path, f"patch {resource.name}{part}", body, how)
        return _object(resource, key, data)

    async def delete(self, resource: Resource, key: str, *, uid: str = "") -> None:
        """Delete an object, if it is the one with that uid."""
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        await self.call("DELETE", resource.path(key), f"delete {resource.name}", body)

    async def record_event(self, namespace: str, body: dict[str, Any], repeated: dict[str, Any]) -> None:
        """Create a Kubernetes Event; one that is there already gets `repeated` (its count and last time) instead."""
        query = f"?fieldManager={MANAGER}"
        collection, name = EVENTS.collection(namespace), body["metadata"]["name"]
        try:
            await self.call("POST", collection + query, "create events", body)
        except Conflict:
            await self.call("PATCH", f"{collection}/{name}{query}", "patch events", repeated, MERGE)


def _unanswered(method: str, path: str, error: Exception) -> Busy | Ambiguous:
    """What it means that there was no answer: a request that was never sent, or only reads, was not done."""
    message = f"{method} {path}: {type(error).__name__} {error}"
    never_sent = isinstance(error, _NEVER_SENT)
    return Busy(message) if never_sent or method == "GET" else Ambiguous(message)


def _object(resource: Resource, key: str, data: bytes) -> Seen:
    try:
        wire = decoder_of(resource.name).object(data)
    except msgspec.DecodeError as error:
        raise Busy(f"{resource.name} {key}: the answer is no object: {error}") from error
    if isinstance(wire, Unreadable):
        raise Busy(f"{resource.name} {key} cannot be read: {wire.error}")
    return see(resource, wire)
