"""Registration of the webhooks in the cluster: the Secret with the certificates, and the two configuration objects.

Every replica reads the Secret; only the leader writes. Keys stay in the Secret and in memory: no event and no log line
contains them.
"""

import logging
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from services.gateway.kube_api.api_errors import ApiError, Forbidden, NotFound
from services.gateway.kube_api.client import KubeApi
from services.gateway.permissions import CONFIGURATION_NAME
from services.gateway.webhooks.certificate_bundle import CertificateBundle, Lifetimes, expires_at, next_bundle
from services.gateway.webhooks.webhook_definitions import Webhook, WebhookEndpoint, configuration

log = logging.getLogger(__name__)

Raw = dict[str, Any]

GROUP = "admissionregistration.k8s.io"
KINDS = {
    True: ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    False: ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
}
"""`Webhook.mutates` -> kind and plural of the configuration object."""


class DesiredRegistration(NamedTuple):
    """Desired content of the Secret and the configuration objects.

    Attributes:
        names: host names and addresses of the webhook server.
        secret: `namespace/name` of the certificates' Secret.
        namespace: the system's own namespace, whose objects are exempt.
    """

    webhooks: tuple[Webhook, ...]
    endpoint: WebhookEndpoint
    names: tuple[str, ...]
    secret: str
    namespace: str
    failure_policy: str
    lifetimes: Lifetimes


class WebhookRegistration:
    """Reads the certificates, renews them, and restores the configuration objects.

    Attributes:
        bundle: the certificates last read or written.
    """

    def __init__(self, api: KubeApi, desired: DesiredRegistration) -> None:
        self._api = api
        self._desired = desired
        self.bundle: CertificateBundle | None = None

    async def read(self) -> bool:
        """Reads the certificates; returns whether they have changed.

        Raises:
            ApiError: the Secret cannot be read.
        """
        secret = await self._get(self._secret_path, f"get secrets {self._desired.secret}")
        found = _bundle(secret) if secret else None
        changed = found is not None and found != self.bundle
        self.bundle = found or self.bundle
        return changed

    async def renew(self, now: datetime) -> bool:
        """Issues or renews the certificates if needed; returns whether they were.

        Raises:
            ApiError: the Secret cannot be read or written; `Conflict` if another replica has just written it.
        """
        namespace, _, name = self._desired.secret.partition("/")
        stored = await self._get(self._secret_path, f"get secrets {self._desired.secret}")
        bundle = _bundle(stored) if stored else None
        following = next_bundle(bundle, self._desired.names, self._desired.lifetimes, now)
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
            "data": {entry: b64encode(text).decode() for entry, text in following.secret_data().items()},
        }
        await self._put(self._secret_path, body, stored, f"secrets {self._desired.secret}")
        log.info("webhook certificates renewed", extra={"until": expires_at(following.certificate).isoformat()})
        return True

    async def apply_configurations(self) -> list[str]:
        """Writes the configuration objects that differ from the desired ones; returns their kinds.

        Raises:
            ApiError: one cannot be read or written.
        """
        assert self.bundle is not None, "certificates come first"
        authorities = b64encode(self.bundle.authorities).decode()
        changed = []
        for mutates, (kind, plural) in KINDS.items():
            webhooks = [webhook for webhook in self._desired.webhooks if webhook.mutates == mutates]
            path = f"/apis/{GROUP}/v1/{plural}/{CONFIGURATION_NAME}"
            stored = await self._get(path, f"get {plural}.{GROUP}")
            if not webhooks:
                if stored:
                    await self._api.call("DELETE", path, f"delete {plural}.{GROUP}")
                    changed.append(kind)
                continue
            entries = [self._entry(webhook, authorities) for webhook in webhooks]
            if stored and stored.get("webhooks") == entries:
                continue
            body = {
                "apiVersion": f"{GROUP}/v1",
                "kind": kind,
                "metadata": {"name": CONFIGURATION_NAME, "labels": {"app.kubernetes.io/managed-by": "koordstream"}},
                "webhooks": entries,
            }
            await self._put(path, body, stored, f"{plural}.{GROUP}")
            changed.append(kind)
        return changed

    def _entry(self, webhook: Webhook, authorities: str) -> Raw:
        desired = self._desired
        return configuration(webhook, desired.endpoint, authorities, desired.namespace, desired.failure_policy)

    @property
    def _secret_path(self) -> str:
        namespace, _, name = self._desired.secret.partition("/")
        return f"/api/v1/namespaces/{namespace}/secrets/{name}"

    async def _get(self, path: str, rule: str) -> Raw | None:
        try:
            found: Raw = msgspec.json.decode(await self._api.call("GET", path, rule))
        except NotFound:
            return None
        return found

    async def _put(self, path: str, body: Raw, stored: Raw | None, rule: str) -> None:
        """Creates the object, or replaces it if it still has the version that was read."""
        if stored is None:
            await self._api.call("POST", path.rpartition("/")[0], f"create {rule}", body)
            return
        body["metadata"] |= {"resourceVersion": stored["metadata"]["resourceVersion"]}
        await self._api.call("PUT", path, f"update {rule}", body)


def error_fields(error: ApiError) -> dict[str, str]:
    """Returns the log fields of an API error."""
    rule = {"rule": error.rule} if isinstance(error, Forbidden) else {}
    return {"error": str(error), **rule}


def utc_time(now_ns: int) -> datetime:
    """Returns a time with the precision of certificates: whole seconds."""
    return datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)


def _bundle(secret: Raw) -> CertificateBundle | None:
    try:
        return CertificateBundle.from_secret(
            {name: b64decode(text) for name, text in (secret.get("data") or {}).items()}
        )
    except ValueError:
        return None
