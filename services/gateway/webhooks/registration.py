"""Registration of the webhooks in the cluster: the two configuration objects, which the leader writes."""

from base64 import b64encode
from typing import NamedTuple

from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.raw_object_requests import Raw, get_object, put_object
from services.gateway.needed_rbac_rules import CONFIGURATION_NAME
from services.gateway.webhooks.certificate_bundle import CertificateBundle
from services.gateway.webhooks.webhook_definitions import Webhook, WebhookEndpoint, configuration

GROUP = "admissionregistration.k8s.io"
KINDS = {
    True: ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    False: ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
}
"""`Webhook.mutates` -> kind and plural of the configuration object."""


class DesiredRegistration(NamedTuple):
    """Desired content of the configuration objects.

    Attributes:
        namespace: the system's own namespace, whose objects are exempt.
    """

    webhooks: tuple[Webhook, ...]
    endpoint: WebhookEndpoint
    namespace: str
    failure_policy: str


class WebhookRegistration:
    """Restores the configuration objects."""

    def __init__(self, api: KubeApi, desired: DesiredRegistration) -> None:
        self._api = api
        self._desired = desired

    async def apply_configurations(self, bundle: CertificateBundle) -> list[str]:
        """Writes the configuration objects that differ from the desired ones; returns their kinds.

        Raises:
            ApiError: one cannot be read or written.
        """
        authorities = b64encode(bundle.authorities).decode()
        changed = []
        for mutates, (kind, plural) in KINDS.items():
            webhooks = [webhook for webhook in self._desired.webhooks if webhook.mutates == mutates]
            path = f"/apis/{GROUP}/v1/{plural}/{CONFIGURATION_NAME}"
            stored = await get_object(self._api, path, f"get {plural}.{GROUP}")
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
            await put_object(self._api, path, body, stored, f"{plural}.{GROUP}")
            changed.append(kind)
        return changed

    def _entry(self, webhook: Webhook, authorities: str) -> Raw:
        desired = self._desired
        return configuration(webhook, desired.endpoint, authorities, desired.namespace, desired.failure_policy)
