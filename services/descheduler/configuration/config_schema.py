"""The schema of DeschedulerConfiguration. Source: spec/descheduler.md 1.1, spec/api.md 4.4."""

from typing import Annotated

from msgspec import Meta, field

from shared.domain.component_config import ClientConnection, LeaderElection, PluginConfig, Strict
from shared.kube.selectors import LabelSelector

Limit = Annotated[int, Meta(ge=0)]


class PluginEntry(Strict):
    """A plugin of a set."""

    name: str


class PluginSet(Strict):
    """The plugins enabled and disabled in one set; `*` disables all that are enabled by default."""

    enabled: list[PluginEntry] = field(default_factory=list)
    disabled: list[PluginEntry] = field(default_factory=list)


class PluginSets(Strict):
    """The plugins by kind."""

    deschedule: PluginSet | None = None
    balance: PluginSet | None = None
    evict: PluginSet | None = None
    filter: PluginSet | None = None


class ProfileDocument(Strict):
    """One profile."""

    name: str = ""
    plugins: PluginSets | None = None
    plugin_config: list[PluginConfig] | None = None
    node_selector: LabelSelector | None = None


class Document(Strict):
    """The whole document; durations are Go's, such as `60s`."""

    api_version: str = ""
    kind: str = ""
    descheduling_interval: str | None = None
    dry_run: bool = False
    profiles: list[ProfileDocument] | None = None
    node_selector: LabelSelector | None = None
    max_no_of_pods_to_evict_per_node: Limit | None = None
    max_no_of_pods_to_evict_per_namespace: Limit | None = None
    max_no_of_pods_to_evict_total: Limit | None = None
    # Accepted without effect: each steers a mechanism that works otherwise here.
    leader_election: LeaderElection | None = None
    client_connection: ClientConnection | None = None
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    healthz_bind_address: str | None = None
    metrics_bind_address: str | None = None
