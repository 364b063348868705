"""The Secret with the webhooks' certificates: read by every replica, issued and renewed by the leader.

Keys stay in the Secret and in memory: no event and no log line contains them.
"""

import logging
from base64 import b64decode, b64encode
from datetime import UTC, datetime

from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.raw_object_requests import Raw, get_object, put_object
from services.gateway.webhooks.certificate_bundle import CertificateBundle, Lifetimes, expires_at, next_bundle

log = logging.getLogger(__name__)


class CertificateSecret:
    """Reads the certificates and renews them.

    Attributes:
        bundle: the certificates last read or written.
    """

    def __init__(self, api: KubeApi, secret: str, names: tuple[str, ...], lifetimes: Lifetimes) -> None:
        """Begins without certificates.

        Args:
            secret: `namespace/name`.
            names: host names and addresses of the webhook server.
        """
        self._api, self._secret, self._names, self._lifetimes = api, secret, names, lifetimes
        self.bundle: CertificateBundle | None = None

    async def read(self) -> bool:
        """Reads the certificates; returns whether they have changed.

        Raises:
            ApiError: the Secret cannot be read.
        """
        secret = await get_object(self._api, self._path, f"get secrets {self._secret}")
        found = _bundle(secret) if secret else None
        changed = found is not None and found != self.bundle
        self.bundle = found or self.bundle
        return changed

    async def renew(self, now: datetime) -> bool:
        """Issues or renews the certificates if needed; returns whether they were.

        Raises:
            ApiError: the Secret cannot be read or written; `Conflict` if another replica has just written it.
        """
        namespace, _, name = self._secret.partition("/")
        stored = await get_object(self._api, self._path, f"get secrets {self._secret}")
        bundle = _bundle(stored) if stored else None
        following = next_bundle(bundle, self._names, self._lifetimes, now)
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
        await put_object(self._api, self._path, body, stored, f"secrets {self._secret}")
        log.info("webhook certificates renewed", extra={"until": expires_at(following.certificate).isoformat()})
        return True

    @property
    def _path(self) -> str:
        namespace, _, name = self._secret.partition("/")
        return f"/api/v1/namespaces/{namespace}/secrets/{name}"


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
