"""RBAC rules that the gateway's account needs, and a check of each for `koord doctor`.

Each rule is checked by a SelfSubjectAccessReview. A review stores nothing and every account may make one about itself,
so it works in shadow mode too. The check runs on request only.
"""

import asyncio
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec
from yarl import URL

from services.gateway.kube_api.api_errors import ApiError
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.connections import Connections, NoCluster
from services.gateway.kube_api.resources import CONFIG_MAPS, EVENTS, NODES, PODS, Resource, watched_resources
from services.gateway.settings import GatewaySettings
from shared.kube import resource_names
from shared.kube.rbac_permissions import Permissions, Rule
from shared.runtime.service import Runtime

CONCURRENT_REVIEWS = 16
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SUBJECT_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

_CUSTOM = (".koordinator.sh", ".scheduling.sigs.k8s.io", ".topology.node.k8s.io")
"""Suffixes of custom resources' names. Only of these are whole objects written."""
CONFIGURATION_NAME = "koordstream-webhooks"
"""Name of both webhook configuration objects."""
_CHECKPOINT = ("koordinator-system", "koordstream-checkpoint")
_WRITTEN_BY_USERS = frozenset({resource_names.PROFILES, resource_names.RECOMMENDATIONS})
_WITH_STATUS = frozenset(
    {
        resource_names.NODE_METRICS,
        resource_names.NODE_SLOS,
        resource_names.NETWORK_TOPOLOGIES,
        resource_names.MIGRATION_JOBS,
        resource_names.RESERVATIONS,
        resource_names.EXPLANATIONS,
    }
)
_ON_CORE = (
    (PODS, "get", "", "reading a pod back after a time-out"),
    (PODS, "create", "binding", "binding pods to their nodes"),
    (PODS, "create", "eviction", "evicting pods"),
    (PODS, "patch", "status", "the condition of pods that are not scheduled"),
    (PODS, "patch", "", "annotations of pods"),
    (NODES, "get", "", "reading a node back after a conflict"),
    (NODES, "patch", "", "annotations and labels of nodes"),
    (NODES, "patch", "status", "batch and mid resources of nodes"),
    (EVENTS, "create", "", "Kubernetes Events about pods"),
    (EVENTS, "patch", "", "counting a Kubernetes Event that is repeated"),
)


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


def rules(settings: GatewaySettings) -> Iterator[Rule]:
    """Yields the rules for all requests of the gateway; in shadow mode only those of its reads."""
    for resource in watched_resources(settings.config_namespace):
        for verb in ("list", "watch"):
            yield _rule(resource, verb, "", f"observing {resource.plural}")
    if settings.shadow:
        return
    for resource, verb, part, needed_for in _ON_CORE:
        yield _rule(resource, verb, part, needed_for)
    for resource in watched_resources(settings.config_namespace):
        if not resource.name.endswith(_CUSTOM):
            continue
        if resource.name == resource_names.RECOMMENDATIONS:
            yield _rule(resource, "patch", "status", "answering recommendations")
        if resource.name in _WRITTEN_BY_USERS:
            continue
        for verb in ("get", "create", "patch", "delete"):
            yield _rule(resource, verb, "", f"writing {resource.plural}")
        if resource.name in _WITH_STATUS:
            yield _rule(resource, "patch", "status", f"the status of {resource.plural}")
    if settings.webhook_listen:
        yield from _for_webhooks(settings)
    namespace, name = _CHECKPOINT
    for verb in ("get", "create", "patch"):
        yield Rule(verb, CONFIG_MAPS.plural, "", namespace, "carrying checkpoints out of the database", name)


def _for_webhooks(settings: GatewaySettings) -> Iterator[Rule]:
    why = "the webhooks' certificates"
    for verb in ("get", "create", "update"):
        name = settings.webhook_certificates if verb != "create" else ""
        yield Rule(verb, "secrets", "", settings.webhook_namespace, why, name)
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for verb in ("get", "create", "update", "delete"):
            name = CONFIGURATION_NAME if verb != "create" else ""
            yield Rule(verb, plural, "admissionregistration.k8s.io", "", "keeping the webhooks' configuration", name)


def _rule(resource: Resource, verb: str, part: str, needed_for: str) -> Rule:
    plural, _, group = resource.name.partition(".")
    namespace = resource.namespace if resource.name == CONFIG_MAPS.name else ""
    return Rule(verb, f"{plural}/{part}" if part else plural, group, namespace, needed_for)


async def serve(runtime: Runtime, _request: bytes) -> bytes:
    """Returns the JSON of `Permissions`."""
    return msgspec.json.encode(await check(runtime.settings, runtime.now_ns()))


async def check(settings: GatewaySettings, now_ns: int) -> Permissions:
    """Checks every rule, with connections of its own."""
    server = ""
    try:
        async with KubeApi(settings.kubeconfig, timeout_s=settings.timeout_s) as api:
            server, version, ahead_s = await _server_version(settings)
            needed = list(rules(settings))
            semaphore = asyncio.Semaphore(CONCURRENT_REVIEWS)
            found = await asyncio.gather(*(_is_allowed(api, rule, semaphore) for rule in needed))
            name = await account(api)
    except (ApiError, NoCluster, aiohttp.ClientError, OSError, TimeoutError) as error:
        return Permissions(server, now_ns, shadow=settings.shadow, problem=str(error) or repr(error))
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
            timeout=aiohttp.ClientTimeout(total=settings.timeout_s),
            server_hostname=connections.server_hostname,
        ) as response:
            answered = time.time()
            body = await response.read()
            date = response.headers.get("Date", "")
        version = msgspec.json.decode(body, type=_Version).git_version if response.status == 200 else ""
        # The header has whole seconds: half a second later is off by half a second at most.
        ahead_s = parsedate_to_datetime(date).timestamp() + 0.5 - (sent + answered) / 2 if date else 0.0
        return connections.host, version, ahead_s
