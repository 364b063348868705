"""Keeps what the webhooks need in the cluster: the Secret with the certificates, and the two configuration objects.

Every replica reads the Secret; only the one that leads writes. Keys stay in the Secret and in memory: neither the log nor an event holds
them.
"""

import logging
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from services.gateway.kube_api.api_errors import ApiProblem, Conflict, Forbidden, NotFound
from services.gateway.kube_api.client import KubeApi
from services.gateway.permissions import WEBHOOKS
from services.gateway.webhooks.certificates import Bundle, Terms, ends, renewed
from services.gateway.webhooks.webhook_definitions import Hook, Place, configuration

log = logging.getLogger(__name__)

Raw = dict[str, Any]

GROUP = "admissionregistration.k8s.io"
KINDS = {
    True: ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    False: ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
}
"""Whether its webhooks mutate -> kind, plural."""


class Wanted(NamedTuple):
    """What is to be kept.

    Attributes:
        names: under which the server is called.
        secret: `namespace/name` of the certificates' Secret.
        namespace: whose objects pass unasked.
    """

    hooks: tuple[Hook, ...]
    place: Place
    names: tuple[str, ...]
    secret: str
    namespace: str
    failure_policy: str
    terms: Terms


class Keeper:
    """Looks, and mends.

    Attributes:
        bundle: what was last read or written.
    """

    def __init__(self, api: KubeApi, wanted: Wanted) -> None:
        self._api = api
        self._wanted = wanted
        self.bundle: Bundle | None = None

    async def read(self) -> bool:
        """Read the certificates; whether they are others than before.

        Raises:
            ApiProblem: the Secret cannot be read.
        """
        secret = await self._get(self._secret_path, f"get secrets {self._wanted.secret}")
        found = _bundle(secret) if secret else None
        changed = found is not None and found != self.bundle
        self.bundle = found or self.bundle
        return changed

    async def renew(self, now: datetime) -> bool:
        """Make or renew the certificates; whether that was needed.

        Raises:
            ApiProblem: the Secret cannot be read or written; `Conflict`: another has just written it.
        """
        namespace, _, name = self._wanted.secret.partition("/")
        stored = await self._get(self._secret_path, f"get secrets {self._wanted.secret}")
        bundle = _bundle(stored) if stored else None
        following = renewed(bundle, self._wanted.names, self._wanted.terms, now)
        self.bundle = following or bundle
        if following is None:
            return False
        body: Raw = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/managed-by": "koordstream"},
            },
            "type": "Opaque",
            "data": {entry: b64encode(text).decode() for entry, text in following.data().items()},
        }
        await self._put(self._secret_path, body, stored, f"secrets {self._wanted.secret}")
        log.info("webhook certificates renewed", extra={"until": ends(following.certificate).isoformat()})
        return True

    async def mend(self) -> list[str]:
        """Make the configuration objects say what they must; the kinds that did not.

        Raises:
            ApiProblem: one cannot be read or written.
        """
        assert self.bundle is not None, "certificates come first"
        authorities = b64encode(self.bundle.authorities).decode()
        mended = []
        for mutates, (kind, plural) in KINDS.items():
            hooks = [hook for hook in self._wanted.hooks if hook.mutates == mutates]
            path = f"/apis/{GROUP}/v1/{plural}/{WEBHOOKS}"
            stored = await self._get(path, f"get {plural}.{GROUP}")
            if not hooks:
                if stored:
                    await self._api.call("DELETE", path, f"delete {plural}.{GROUP}")
                    mended.append(kind)
                continue
            entries = [self._entry(hook, authorities) for hook in hooks]
            if stored and stored.get("webhooks") == entries:
                continue
            body = {
                "apiVersion": f"{GROUP}/v1",
                "kind": kind,
                "metadata": {"name": WEBHOOKS, "labels": {"app.kubernetes.io/managed-by": "koordstream"}},
                "webhooks": entries,
            }
            await self._put(path, body, stored, f"{plural}.{GROUP}")
            mended.append(kind)
        return mended

    def _entry(self, hook: Hook, authorities: str) -> Raw:
        wanted = self._wanted
        return configuration(hook, wanted.place, authorities, wanted.namespace, wanted.failure_policy)

    @property
    def _secret_path(self) -> str:
        namespace, _, name = self._wanted.secret.partition("/")
        return f"/api/v1/namespaces/{namespace}/secrets/{name}"

    async def _get(self, path: str, rule: str) -> Raw | None:
        try:
            found: Raw = msgspec.json.decode(await self._api.call("GET", path, rule))
        except NotFound:
            return None
        return found

    async def _put(self, path: str, body: Raw, stored: Raw | None, rule: str) -> None:
        """Create, or replace what was read, if it is still that."""
        if stored is None:
            await self._api.call("POST", path.rpartition("/")[0], f"create {rule}", body)
            return
        body["metadata"] |= {"resourceVersion": stored["metadata"]["resourceVersion"]}
        await self._api.call("PUT", path, f"update {rule}", body)


def said(problem: ApiProblem) -> dict[str, str]:
    """What the log says of a look that failed."""
    rule = {"rule": problem.rule} if isinstance(problem, Forbidden) else {}
    return {"error": str(problem), **rule}


def harmless(problem: ApiProblem) -> bool:
    """Whether the next look does what this one could not, without anybody's help."""
    return isinstance(problem, Conflict)


def instant(now_ns: int) -> datetime:
    """A time as certificates have it."""
    return datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)


def _bundle(secret: Raw) -> Bundle | None:
    try:
        return Bundle.of({name: b64decode(text) for name, text in (secret.get("data") or {}).items()})
    except ValueError:
        return None
