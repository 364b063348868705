"""The gateway's settings: `KOORD_GATEWAY_<FIELD>` in the environment; `koord run gateway --help` prints this table."""

from typing import Annotated, Literal

from msgspec import Meta

from shared.settings import Settings


class GatewaySettings(Settings, frozen=True, kw_only=True):
    """Access to the API server, limits of requests, and webhooks."""

    kubeconfig: Annotated[str, Meta(description="path of a kubeconfig; empty: the pod's service account")] = ""
    config_namespace: Annotated[str, Meta(description="namespace whose ConfigMaps are watched; empty: all")] = (
        "koordinator-system"
    )
    shadow: Annotated[
        bool, Meta(description="write nothing: the outcome of every intent is *Suppressed; read-only RBAC suffices")
    ] = False
    concurrency: Annotated[int, Meta(ge=1, le=1024, description="concurrent bindings and evictions")] = 48
    desired_state_concurrency: Annotated[
        int, Meta(ge=1, le=1024, description="concurrent writes of status and objects")
    ] = 16
    writes_per_s: Annotated[float, Meta(gt=0, description="limit of writes started a second")] = 2_000
    timeout_s: Annotated[float, Meta(gt=0, description="time-out of a request")] = 10
    tries: Annotated[int, Meta(ge=1, description="limit of requests for one intent")] = 8
    deadline_s: Annotated[
        float, Meta(gt=0, description="an intent that is not carried out within this time has failed")
    ] = 30
    scheduled_events: Annotated[
        bool, Meta(description="write the Kubernetes Event Scheduled of each bound pod, after the bindings of a burst")
    ] = True
    one_shot_max_age_s: Annotated[
        float, Meta(gt=0, description="an older binding or eviction ends as failed, unless its pod shows it done")
    ] = 3_600
    eviction_window_s: Annotated[float, Meta(gt=0, le=3_600, description="window of the eviction budgets")] = 300
    evictions_per_node: Annotated[int, Meta(ge=1, description="evictions of one node's pods in a window")] = 30
    evictions_per_workload: Annotated[int, Meta(ge=1, description="evictions of one controller's pods in a window")] = (
        60
    )
    evictions_per_namespace: Annotated[int, Meta(ge=1, description="evictions in one namespace in a window")] = 150
    evictions_per_cluster: Annotated[int, Meta(ge=1, description="evictions in a window")] = 500
    eviction_breaker: Annotated[
        int, Meta(ge=1, description="so many pods whose evictions wait for budget hold all: koord evictions release")
    ] = 500
    backoff_s: Annotated[
        float, Meta(gt=0, description="first pause after the server was busy; it grows with each retry")
    ] = 0.1
    backoff_max_s: Annotated[float, Meta(gt=0, description="longest such pause")] = 5
    page_size: Annotated[int, Meta(ge=1, le=5_000, description="objects in one page of a list")] = 500
    watch_s: Annotated[
        float, Meta(ge=1, description="duration of a watch, minus up to a fifth; less than a proxy's limit")
    ] = 300
    watch_idle_timeout_s: Annotated[
        float,
        Meta(gt=0, description="a watch without a byte for this long is reconnected; bookmarks arrive each minute"),
    ] = 100
    quiet_s: Annotated[
        float,
        Meta(
            ge=0,
            description="an API server that has sent nothing for this long gets a small request each second, by which one "
            "that hangs is found; 0: never",
        ),
    ] = 2
    absent_poll_interval_s: Annotated[
        float, Meta(gt=0, description="interval of lists of a resource that is not installed")
    ] = 30
    short_list_percent: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="a list that lacks a larger share of the log's nodes, pods or quotas is not believed",
        ),
    ] = 20
    short_list_min: Annotated[
        int, Meta(ge=1, description="a list that lacks fewer nodes, pods or quotas than this is only repeated")
    ] = 5
    short_list_interval_s: Annotated[float, Meta(gt=0, description="interval of lists while one is not believed")] = 10
    compare_interval_s: Annotated[
        float, Meta(gt=0, description="interval of lists that are compared with the log, beside the watches")
    ] = 1_800
    recheck_s: Annotated[
        float, Meta(gt=0, description="the same after a list that removed objects; it doubles with each list")
    ] = 30
    list_alarm_s: Annotated[
        float, Meta(gt=0, description="a resource that cannot be listed and watched for this long is an error")
    ] = 180
    sweep_interval_s: Annotated[
        float, Meta(gt=0, description="interval of checks for desired states of deleted objects")
    ] = 60
    lease_s: Annotated[
        float,
        Meta(ge=1, description="a system that does not renew its Lease for this long has ended: another may follow it"),
    ] = 30
    webhook_listen: Annotated[
        str, Meta(description="host:port of the admission webhooks (HTTPS); empty: no webhooks")
    ] = ""
    webhook_service: Annotated[
        str, Meta(description="namespace/name[:port] of the Service through which the API server calls them")
    ] = "koordinator-system/koordstream-webhook:443"
    webhook_url: Annotated[
        str, Meta(description="https://host:port for an API server outside of the cluster; replaces the Service")
    ] = ""
    webhook_failure_policy: Annotated[
        Literal["Ignore", "Fail"], Meta(description="failurePolicy: for objects that no webhook answers within 2 s")
    ] = "Ignore"
    webhook_gates: Annotated[
        str, Meta(description="feature gates by upstream's names: Name=true,Other=false; see docs/webhooks.md")
    ] = ""
    webhook_namespace: Annotated[
        str, Meta(description="the system's own: of Lease, certificates and slo-controller-config; its pods are exempt")
    ] = "koordinator-system"
    webhook_certificates: Annotated[
        str, Meta(description="name of the Secret with authority and certificate in that namespace")
    ] = "koordstream-webhook-certs"
    webhook_strategy_names: Annotated[
        bool, Meta(description="each node strategy of slo-controller-config needs a unique name")
    ] = False
    webhook_certificate_s: Annotated[
        float, Meta(gt=0, description="lifetime of a certificate; renewed after two thirds")
    ] = 90 * 86_400
    webhook_authority_s: Annotated[
        float, Meta(gt=0, description="lifetime of the authority; renewed after four fifths")
    ] = 3_650 * 86_400
    webhook_poll_interval_s: Annotated[
        float, Meta(gt=0, description="interval of checks of certificates and configuration objects")
    ] = 10
