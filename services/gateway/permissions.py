"""What the gateway's account must be allowed, and whether it is: an answer for `koord doctor`.

Each rule is put to the API server as a SelfSubjectAccessReview. Such a review stores nothing and every account may make one about
itself, so shadow mode answers too. It runs when someone asks, never by itself.
"""

import asyncio
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec
from yarl import URL

from services.gateway.kube_api.api_errors import ApiProblem
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.credentials import Credentials, NoCluster
from services.gateway.kube_api.resources import CONFIG_MAPS, EVENTS, NODES, PODS, Resource, followed
from services.gateway.settings import GatewaySettings
from shared.kube import resource_names
from shared.kube.rbac_permissions import Permissions, Rule
from shared.runtime.service import Runtime

AT_ONCE = 16
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

_CUSTOM = (".koordinator.sh", ".scheduling.sigs.k8s.io", ".topology.node.k8s.io")
"""How names of custom resources end. Only of these are whole objects written."""
WEBHOOKS = "koordstream-webhooks"
"""Name of both webhook configuration objects."""
_CHECKPOINT = ("koordinator-system", "koordstream-checkpoint")
_PEOPLE_WRITE = frozenset({resource_names.PROFILES, resource_names.RECOMMENDATIONS})
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
    (PODS, "patch", "status", "telling a pod why it is not scheduled"),
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


class _Who(msgspec.Struct):
    status: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


def rules(settings: GatewaySettings) -> Iterator[Rule]:
    """Everything that the gateway does on the API, as rules; in shadow mode only what it reads."""
    for resource in followed(settings.config_namespace):
        for verb in ("list", "watch"):
            yield _rule(resource, verb, "", f"observing {resource.plural}")
    if settings.shadow:
        return
    for resource, verb, part, needed_for in _ON_CORE:
        yield _rule(resource, verb, part, needed_for)
    for resource in followed(settings.config_namespace):
        if not resource.name.endswith(_CUSTOM):
            continue
        if resource.name == resource_names.RECOMMENDATIONS:
            yield _rule(resource, "patch", "status", "answering recommendations")
        if resource.name in _PEOPLE_WRITE:
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
            name = WEBHOOKS if verb != "create" else ""
            yield Rule(verb, plural, "admissionregistration.k8s.io", "", "keeping the webhooks' configuration", name)


def _rule(resource: Resource, verb: str, part: str, needed_for: str) -> Rule:
    plural, _, group = resource.name.partition(".")
    namespace = resource.namespace if resource.name == CONFIG_MAPS.name else ""
    return Rule(verb, f"{plural}/{part}" if part else plural, group, namespace, needed_for)


async def answer(runtime: Runtime, _asked: bytes) -> bytes:
    """The JSON of `Permissions`."""
    return msgspec.json.encode(await look(runtime.settings, runtime.now_ns()))


async def look(settings: GatewaySettings, now_ns: int) -> Permissions:
    """Ask the API server about every rule, with connections of its own."""
    server = ""
    try:
        async with KubeApi(settings.kubeconfig, timeout_s=settings.timeout_s) as api:
            server, version, ahead_s = await _greet(settings)
            wanted = list(rules(settings))
            turn = asyncio.Semaphore(AT_ONCE)
            found = await asyncio.gather(*(_allowed(api, rule, turn) for rule in wanted))
            name = await account(api)
    except (ApiProblem, NoCluster, aiohttp.ClientError, OSError, TimeoutError) as error:
        return Permissions(server, now_ns, shadow=settings.shadow, problem=str(error) or repr(error))
    return Permissions(
        server=server,
        now_ns=now_ns,
        version=version,
        account=name,
        shadow=settings.shadow,
        allowed=tuple(rule for rule, allowed in zip(wanted, found, strict=True) if allowed),
        missing=tuple(rule for rule, allowed in zip(wanted, found, strict=True) if not allowed),
        ahead_s=ahead_s,
    )


async def _allowed(api: KubeApi, rule: Rule, turn: asyncio.Semaphore) -> bool:
    plural, _, part = rule.resource.partition("/")
    asked = {"verb": rule.verb, "group": rule.group, "resource": plural, "subresource": part}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked | {"namespace": rule.namespace, "name": rule.name}},
    }
    async with turn:
        data = await api.call("POST", _REVIEWS, "create selfsubjectaccessreviews.authorization.k8s.io", body)
    return msgspec.json.decode(data, type=_Review).status.allowed


async def account(api: KubeApi) -> str:
    """Who we are; empty where the server is too old to say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        data = await api.call("POST", _WHO, "create selfsubjectreviews.authentication.k8s.io", body)
    except ApiProblem:
        return ""
    return msgspec.json.decode(data, type=_Who).status.user_info.username


async def _greet(settings: GatewaySettings) -> tuple[str, str, float]:
    """The server's address and version, and how far its clock is ahead of this one."""
    async with Credentials(settings.kubeconfig) as credentials:
        asked = time.time()
        async with credentials.session.get(
            URL(f"{credentials.host}/version"),
            headers=await credentials.headers(),
            timeout=aiohttp.ClientTimeout(total=settings.timeout_s),
            server_hostname=credentials.server_hostname,
        ) as response:
            answered = time.time()
            body = await response.read()
            date = response.headers.get("Date", "")
        version = msgspec.json.decode(body, type=_Version).git_version if response.status == 200 else ""
        # The header says the second in which the answer began; its middle is off by half a second at most.
        ahead_s = parsedate_to_datetime(date).timestamp() + 0.5 - (asked + answered) / 2 if date else 0.0
        return credentials.host, version, ahead_s
