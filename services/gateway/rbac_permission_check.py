"""Checks the RBAC rules that the gateway's account needs, for `koord doctor`.

Each rule is checked by a SelfSubjectAccessReview. A review stores nothing and every account may make one about itself,
so it works in shadow mode too. The check runs on request only.
"""

import asyncio
import math
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec
from yarl import URL

from services.gateway.kube_api.api_errors import ApiError
from services.gateway.kube_api.authenticated_connections import Connections, NoCluster
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.connection_error_text import connection_fault
from services.gateway.needed_rbac_rules import rules
from services.gateway.settings import GatewaySettings
from shared.kube.rbac_permissions import Permissions, Rule
from shared.runtime.service import Runtime

CONCURRENT_REVIEWS = 16
FIRST_S = 3.0
"""Seconds within which the API server answers the first request, or counts as one that does not: an operator waits."""
SHARED_S = 2.0
"""Age up to which a result answers further requests."""

_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SUBJECT_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


class _User(msgspec.Struct):
    username: str = ""


class _UserInfo(msgspec.Struct, rename="camel"):
    user_info: _User = msgspec.field(default_factory=_User)


class _SubjectReview(msgspec.Struct):
    status: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class SharedCheck:
    """Responder to requests: those that arrive while a check runs, or soon after it, share its result.

    A check sends a hundred requests to the API server: one for each message of a flood would take the gateway's time
    and the API server's.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._newest: asyncio.Task[bytes] | None = None
        self._until_s = math.inf

    async def serve(self, runtime: Runtime, _request: bytes) -> bytes:
        """Returns the JSON of `Permissions`."""
        if self._newest is None or self._now_s() > self._until_s:
            self._until_s = math.inf
            self._newest = asyncio.create_task(self._check(runtime), name="permissions")
        return await asyncio.shield(self._newest)

    async def _check(self, runtime: Runtime) -> bytes:
        try:
            return msgspec.json.encode(await check(runtime.settings, runtime.now_ns()))
        finally:
            self._until_s = self._now_s() + SHARED_S


async def check(settings: GatewaySettings, now_ns: int) -> Permissions:
    """Checks every rule, with connections of its own."""
    server = ""
    try:
        async with KubeApi(settings.kubeconfig, timeout_s=settings.timeout_s) as api:
            server, version, ahead_s = await _server_version(settings)
            needed = rules(settings)
            semaphore = asyncio.Semaphore(CONCURRENT_REVIEWS)
            found = await asyncio.gather(*(_is_allowed(api, rule, semaphore) for rule in needed))
            name = await account(api)
    except (ApiError, NoCluster, aiohttp.ClientError, OSError, TimeoutError) as error:
        return Permissions(server, now_ns, shadow=settings.shadow, problem=connection_fault(error))
    return Permissions(
        server=server,
        now_ns=now_ns,
        version=version,
        account=name,
        shadow=settings.shadow,
        allowed=tuple(rule for rule, allowed in zip(needed, found, strict=True) if allowed),
        missing=tuple(rule for rule, allowed in zip(needed, found, strict=True) if not allowed),
        ahead_s=ahead_s,
    )


async def _is_allowed(api: KubeApi, rule: Rule, semaphore: asyncio.Semaphore) -> bool:
    plural, _, part = rule.resource.partition("/")
    attributes = {"verb": rule.verb, "group": rule.group, "resource": plural, "subresource": part}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes | {"namespace": rule.namespace, "name": rule.name}},
    }
    async with semaphore:
        data = await api.call("POST", _ACCESS_REVIEWS, "create selfsubjectaccessreviews.authorization.k8s.io", body)
    return msgspec.json.decode(data, type=_Review).status.allowed


async def account(api: KubeApi) -> str:
    """Returns the gateway's user name; empty if the server is too old for SelfSubjectReviews."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        data = await api.call("POST", _SUBJECT_REVIEWS, "create selfsubjectreviews.authentication.k8s.io", body)
    except ApiError:
        return ""
    return msgspec.json.decode(data, type=_SubjectReview).status.user_info.username


async def _server_version(settings: GatewaySettings) -> tuple[str, str, float]:
    """Returns the server's address and version, and by how many seconds its clock is ahead of this one."""
    async with Connections(settings.kubeconfig) as connections:
        sent = time.time()
        async with connections.session.get(
            URL(f"{connections.host}/version"),
            headers=await connections.headers(),
            timeout=aiohttp.ClientTimeout(total=min(settings.timeout_s, FIRST_S)),
            server_hostname=connections.server_hostname,
        ) as response:
            answered = time.time()
            body = await response.read()
            date = response.headers.get("Date", "")
        version = msgspec.json.decode(body, type=_Version).git_version if response.status == 200 else ""
        # The header has whole seconds: half a second later is off by half a second at most.
        ahead_s = parsedate_to_datetime(date).timestamp() + 0.5 - (sent + answered) / 2 if date else 0.0
        return connections.host, version, ahead_s
