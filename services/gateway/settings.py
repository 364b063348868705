"""The gateway's settings: `KOORD_GATEWAY_<FIELD>` in the environment; `koord run gateway --help` prints this table."""

from typing import Annotated, Literal

from msgspec import Meta

from shared.settings import Settings


class GatewaySettings(Settings, frozen=True, kw_only=True):
    """How the gateway reaches the API server, and how hard it works it."""

    kubeconfig: Annotated[str, Meta(description="path of a kubeconfig; empty: the pod's service account")] = ""
    config_namespace: Annotated[str, Meta(description="whose ConfigMaps are followed; empty: of all namespaces")] = (
        "koordinator-system"
    )
    shadow: Annotated[
        bool, Meta(description="write nothing: every intent is answered as withheld; read-only RBAC is enough")
    ] = False
    concurrency: Annotated[int, Meta(ge=1, le=1024, description="bindings and evictions at once")] = 48
    desired_state_concurrency: Annotated[int, Meta(ge=1, le=1024, description="status and object writes at once")] = 16
    writes_per_s: Annotated[float, Meta(gt=0, description="writes started each second, at most")] = 2_000
    timeout_s: Annotated[
        float, Meta(gt=0, description="a request without its whole answer after this is unanswered")
    ] = 10
    tries: Annotated[int, Meta(ge=1, description="requests for one intent, at most")] = 8
    deadline_s: Annotated[float, Meta(gt=0, description="an intent that is not done after this has failed")] = 30
    backoff_s: Annotated[
        float, Meta(gt=0, description="the first pause after a request that found the server busy")
    ] = 0.1
    backoff_max_s: Annotated[float, Meta(gt=0, description="the longest such pause")] = 5
    page_size: Annotated[int, Meta(ge=1, le=5_000, description="objects in one page of a list")] = 500
    watch_s: Annotated[
        float, Meta(ge=1, description="how long a watch lasts, minus up to a fifth; below a proxy's limit")
    ] = 300
    watch_idle_timeout_s: Annotated[
        float, Meta(gt=0, description="a watch without a byte for this long is dead; bookmarks come each minute")
    ] = 100
    absent_poll_interval_s: Annotated[
        float, Meta(gt=0, description="how often a resource that is not installed is looked for")
    ] = 30
    sweep_interval_s: Annotated[
        float, Meta(gt=0, description="how often levels of objects that are gone are looked for")
    ] = 60
    webhook_listen: Annotated[
        str, Meta(description="host:port on which admission webhooks are served, by HTTPS; empty: there are none")
    ] = ""
    webhook_service: Annotated[
        str, Meta(description="namespace/name[:port] of the Service by which the API server finds them")
    ] = "koordinator-system/koordstream-webhook:443"
    webhook_url: Annotated[
        str, Meta(description="https://host:port by which it finds them from outside; wins over the Service")
    ] = ""
    webhook_failure_policy: Annotated[
        Literal["Ignore", "Fail"], Meta(description="what happens to an object when no webhook answers in 2 s")
    ] = "Ignore"
    webhook_gates: Annotated[
        str, Meta(description="feature gates by upstream's names: Name=true,Other=false; see docs/webhooks.md")
    ] = ""
    webhook_namespace: Annotated[
        str, Meta(description="this system's own: of the certificates and slo-controller-config; its pods pass unasked")
    ] = "koordinator-system"
    webhook_certificates: Annotated[
        str, Meta(description="name of the Secret there that holds authority and certificate")
    ] = "koordstream-webhook-certs"
    webhook_strategy_names: Annotated[
        bool, Meta(description="each node strategy of slo-controller-config needs a name of its own")
    ] = False
    webhook_certificate_s: Annotated[
        float, Meta(gt=0, description="how long a certificate lasts; renewed after two thirds")
    ] = 90 * 86_400
    webhook_authority_s: Annotated[
        float, Meta(gt=0, description="how long their authority lasts; renewed after four fifths")
    ] = 3_650 * 86_400
    webhook_poll_interval_s: Annotated[
        float, Meta(gt=0, description="how often certificates and configuration objects are looked at")
    ] = 10
