"""The schema of KubeSchedulerConfiguration. Source: spec/api.md 4.3; Kubernetes' kubescheduler.config.k8s.io/v1."""

from typing import Annotated, Any

from msgspec import Meta, field

from shared.domain.component_config import ClientConnection, LeaderElection, PluginConfig, Strict

Percent = Annotated[int, Meta(ge=0, le=100)]


class PluginEntry(Strict):
    """A plugin at an extension point; its weight counts at `score` and `multiPoint`.

    The bound is upstream's int32. A score is 100 at most, so the total of all plugins stays below 2^53, and the
    kernels, which sum it as whole floats, are exact.
    """

    name: str
    weight: Annotated[int, Meta(le=2**31 - 1)] = 0


class PluginSet(Strict):
    """The plugins enabled and disabled at one extension point; `*` disables all that are enabled by default."""

    enabled: list[PluginEntry] | None = None
    disabled: list[PluginEntry] | None = None


class PluginSets(Strict):
    """The plugins by extension point."""

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
