"""KubeSchedulerConfiguration as it is written. Source: spec/api.md 4.3; Kubernetes' kubescheduler.config.k8s.io/v1."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

Percent = Annotated[int, Meta(ge=0, le=100)]


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Base: an unknown field is a mistake."""


class PluginEntry(Strict):
    """A plugin at a point; the weight matters at `score` and `multiPoint`."""

    name: str
    weight: Annotated[int, Meta(le=2**31 - 1)] = 0


class PluginSet(Strict):
    """What is put in and taken out at one point; `*` takes out all that are there by default."""

    enabled: list[PluginEntry] | None = None
    disabled: list[PluginEntry] | None = None


class PluginSets(Strict):
    """The plugins by point."""

    pre_enqueue: PluginSet | None = None
    queue_sort: PluginSet | None = None
    pre_filter: PluginSet | None = None
    filter: PluginSet | None = None
    post_filter: PluginSet | None = None
    pre_score: PluginSet | None = None
    score: PluginSet | None = None
    reserve: PluginSet | None = None
    permit: PluginSet | None = None
    pre_bind: PluginSet | None = None
    bind: PluginSet | None = None
    post_bind: PluginSet | None = None
    multi_point: PluginSet | None = None


class PluginConfig(Strict):
    """A plugin's arguments."""

    name: str
    args: dict[str, Any] | None = None


class LeaderElection(Strict):
    """How upstream's replicas elect one; the log decides here."""

    leader_elect: bool | None = None
    lease_duration: str | None = None
    renew_deadline: str | None = None
    retry_period: str | None = None
    resource_lock: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None


class ClientConnection(Strict):
    """How upstream reaches the API server; the gateway does here."""

    kubeconfig: str | None = None
    accept_content_types: str | None = None
    content_type: str | None = None
    qps: float | None = None
    burst: int | None = None


class ProfileDocument(Strict):
    """One profile."""

    scheduler_name: str = "default-scheduler"
    plugins: PluginSets | None = None
    plugin_config: list[PluginConfig] | None = None
    percentage_of_nodes_to_score: Percent | None = None


class Document(Strict):
    """The whole document."""

    api_version: str = ""
    kind: str = ""
    profiles: list[ProfileDocument] | None = None
    # Accepted without effect: each steers a mechanism that works otherwise here.
    parallelism: Annotated[int, Meta(ge=1)] | None = None
    leader_election: LeaderElection | None = None
    client_connection: ClientConnection | None = None
    healthz_bind_address: str | None = None
    metrics_bind_address: str | None = None
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Percent | None = None
    pod_initial_backoff_seconds: Annotated[int, Meta(ge=1)] | None = None
    pod_max_backoff_seconds: Annotated[int, Meta(ge=1)] | None = None
    delay_cache_until_active: bool | None = None
    extenders: list[Any] = field(default_factory=list)
