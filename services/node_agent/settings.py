"""Settings of the agent from the environment. It has no database, so it shares only some names with the services."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from shared.agents.report import MAX_SAMPLES
from shared.errors import KoordError
from shared.kube.instants import SECOND
from shared.prediction.usage_models import PredictionSettings
from shared.settings import Settings

NAME = "node-agent"
DEFAULT_NATS = "nats://127.0.0.1:4222"


class AgentEnvironment(Settings, frozen=True, kw_only=True):
    """Settings that the agent shares with services: `KOORD_<FIELD>`."""

    mqtt: Annotated[str, Meta(description="broker for reports: mqtt[s]://user:password@host:port; empty: NATS")] = ""
    nats: Annotated[str, Meta(description="the bus, for reports when there is no broker")] = DEFAULT_NATS
    nats_nkey: Annotated[str, Meta(description="file with the NKEY seed that proves the bus login; empty: none")] = ""
    nats_ca: Annotated[
        str, Meta(description="authority of the bus's or broker's certificate, PEM; empty: the system's")
    ] = ""
    http_addr: Annotated[
        str, Meta(description="host:port for /healthz, /readyz, /metrics and /statusz; empty: none")
    ] = ""
    log_level: Annotated[str, Meta(description="debug, info, warning or error; JSON lines on stderr")] = "info"


class AgentSettings(Settings, frozen=True, kw_only=True):
    """KOORD_NODE_AGENT_<FIELD> in the environment; `koord run node-agent --help` prints this table.

    A report every 15 s: upstream's agent writes its NodeMetric every 60 s (spec/node-agent.md 7.1, never faster than 30
    s, which protects the API server). Here ingest keeps to that interval when it records and writes, so reports may
    come four times as often: the written status is never older, and an agent that is killed loses less. The first one
    is early, for nodes that are new.
    """

    node: Annotated[str, Meta(description="the Kubernetes node's name; NODE_NAME when empty")] = ""
    transport: Annotated[
        Literal["auto", "mqtt", "nats"], Meta(description="transport of reports; auto: MQTT when KOORD_MQTT is set")
    ] = "auto"
    collect_interval_s: Annotated[float, Meta(ge=0.1, le=60, description="seconds between two samples")] = 1.0
    report_interval_s: Annotated[float, Meta(ge=1, le=3600, description="seconds between two reports")] = 15.0
    first_report_s: Annotated[float, Meta(ge=1, le=3600, description="seconds from the start to the first report")] = (
        5.0
    )
    proc_root: Annotated[str, Meta(description="where procfs is mounted")] = "/proc"
    cgroup_root: Annotated[str, Meta(description="where the cgroup hierarchies are mounted")] = "/sys/fs/cgroup"
    cgroup_parent: Annotated[str, Meta(description="the cgroup that kubepods lies in: the kubelet's --cgroup-root")] = (
        ""
    )
    sys_root: Annotated[str, Meta(description="where sysfs is mounted")] = "/sys"
    container_logs: Annotated[
        str, Meta(description="the kubelet's links to the logs of containers, which name them")
    ] = "/var/log/containers"
    kubelet_root: Annotated[str, Meta(description="the kubelet's folder: mounted volumes, CPU assignments")] = (
        "/var/lib/kubelet"
    )
    kubelet_config: Annotated[
        str,
        Meta(description="the kubelet's configuration file; without it the CPU manager's settings are not reported"),
    ] = "/var/lib/kubelet/config.yaml"
    terway_root: Annotated[str, Meta(description="where Terway reads shares of the network")] = "/var/lib/terway/qos"
    nvml: Annotated[str, Meta(description="NVIDIA's management library, for the gate Accelerators")] = (
        "libnvidia-ml.so.1"
    )
    device_infos: Annotated[
        str,
        Meta(description="folder of the files in which device daemons list accelerators, for the gate Accelerators"),
    ] = "/var/run/koordlet/xpu-device-infos/"
    device_infos_only: Annotated[bool, Meta(description="never call NVIDIA's library")] = False
    nri: Annotated[
        bool, Meta(description="apply hooks before containers start, through NRI; false: afterwards, within seconds")
    ] = True
    nri_socket: Annotated[str, Meta(description="the container runtime's NRI socket")] = "/var/run/nri/nri.sock"
    hook_server: Annotated[
        bool, Meta(description="apply the hooks through a runtime proxy (koord run runtime-proxy) instead of NRI")
    ] = False
    hook_server_socket: Annotated[str, Meta(description="socket on which hooks are served to a runtime proxy")] = (
        "/var/run/koordlet/koordlet.sock"
    )
    hook_server_endpoint: Annotated[str, Meta(description="path of that socket on the host; empty: the same")] = ""
    hook_registrations: Annotated[
        str, Meta(description="folder of the runtime proxy's registrations, in which koordlet.json is written")
    ] = "/etc/runtime/hookserver.d"
    disabled_hook_stages: Annotated[
        str, Meta(description="stages at which no hook runs: PreRunPodSandbox,PreUpdateContainerResources")
    ] = ""
    disable_unset_cpu_quota: Annotated[bool, Meta(description="pods with CPUs of their own keep their CPU quota")] = (
        False
    )
    hook_failure_policy: Annotated[
        Literal["Ignore", "Fail"],
        Meta(description="a hook that fails: Ignore starts the container without it, Fail does not create it"),
    ] = "Ignore"
    hami_core_library: Annotated[str, Meta(description="HAMi-core's library on the host, for shared GPUs")] = (
        "/usr/local/vgpu/libvgpu.so"
    )
    pod_resources_proxy: Annotated[
        str, Meta(description="folder of the pod-resources socket that is served, for the gate PodResourcesProxy")
    ] = "/var/run/koordlet/pod-resources"
    enforce: Annotated[bool, Meta(description="run the strategies; false: only report")] = True
    features: Annotated[
        str, Meta(description="feature gates that differ from the defaults: CPUEvict=true,CPUBurst=false")
    ] = ""
    state_dir: Annotated[str, Meta(description="state over restarts: NodeSLO, pods, original values of cgroups")] = (
        "/var/lib/koord-node-agent"
    )
    qos_extension_plugins: Annotated[
        str, Meta(description="installed QoS plugins that are on: NAME=true, separated by commas")
    ] = ""
    extra_configs: Annotated[
        str, Meta(description="folder where the ConfigMap koordlet-config is mounted, for QoS plugins")
    ] = "/etc/koordlet-config"
    audit_log_dir: Annotated[str, Meta(description="folder of audit events, for the gate AuditEvents")] = (
        "/var/log/koordlet"
    )
    audit_verbose: Annotated[int, Meta(ge=0, description="audit events of a higher level are left out")] = 3
    audit_max_disk_space_mb: Annotated[int, Meta(ge=2, description="megabytes of audit events that are kept")] = 16
    audit_max_concurrent_readers: Annotated[
        int, Meta(ge=1, description="readers of audit events over HTTP that may go on with a next page")
    ] = 4
    audit_max_events_limit: Annotated[int, Meta(ge=1, description="audit events of one page at most")] = 2048
    prediction_cold_start_s: Annotated[
        float, Meta(ge=0, description="a prod pod younger than this counts with its whole request")
    ] = 86_400.0
    prediction_margin_percent: Annotated[int, Meta(ge=0, le=1_000, description="percent added to predictions")] = 10
    backlog_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            description="bytes of reports and actions kept until they are accepted; the oldest are dropped first",
        ),
    ] = 2 * 1024 * 1024
    backlog_disk_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="bytes of compressed reports kept in state_dir through an outage; the oldest are dropped first. 0: "
            "none",
        ),
    ] = 64 * 1024 * 1024

    @property
    def prediction(self) -> PredictionSettings:
        """Settings of the peak prediction."""
        return PredictionSettings(
            cold_start_ns=int(self.prediction_cold_start_s * SECOND),
            safety_margin_percent=self.prediction_margin_percent,
        )


class NoNodeName(KoordError):
    """The settings do not name the node."""

    def __init__(self) -> None:
        super().__init__(
            "neither KOORD_NODE_AGENT_NODE nor NODE_NAME is set; give the Kubernetes node's name (in a DaemonSet from "
            "the field spec.nodeName)"
        )


class TooManySamples(KoordError):
    """One report would hold more samples than ingest accepts."""

    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(
            f"KOORD_NODE_AGENT_REPORT_INTERVAL_S is {settings.report_interval_s:g} and KOORD_NODE_AGENT_COLLECT_INTERVAL_S is "
            f"{settings.collect_interval_s:g}: a report holds at most {MAX_SAMPLES} samples"
        )


def load(environment: Mapping[str, str]) -> tuple[AgentEnvironment, AgentSettings]:
    """Loads both, with the node's name.

    Raises:
        BadSetting, NoNodeName, TooManySamples: naming the variable.
    """
    common = AgentEnvironment.load("", environment)
    own = AgentSettings.load(NAME, environment)
    if max(own.report_interval_s, own.first_report_s) / own.collect_interval_s > MAX_SAMPLES:
        raise TooManySamples(own)
    if not own.node:
        if not environment.get("NODE_NAME"):
            raise NoNodeName
        own = AgentSettings.load(NAME, {**environment, "KOORD_NODE_AGENT_NODE": environment["NODE_NAME"]})
    return common, own
