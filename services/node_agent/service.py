"""The agent as a process. It neither reads nor writes the log, so it is not a `Service`, and has no database."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from services.node_agent import feature_gates
from services.node_agent.audit.audit_log import AuditLog
from services.node_agent.audit.audit_reader import AuditReaders
from services.node_agent.collect_report_loop import Agent
from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.collectors.usage_collector import Collector
from services.node_agent.devices.device_reporting_setup import NodeDevices
from services.node_agent.kernel.kidled_scan_switch import KidledScan
from services.node_agent.prediction.predict_server import PredictServer
from services.node_agent.prometheus.node_metric_series import NodeMetricSeries
from services.node_agent.qos_manager.enforcers.hook_audit import RuntimeSide
from services.node_agent.qos_manager.host_paths import HostPaths
from services.node_agent.qos_manager.qos_manager import QosManager
from services.node_agent.qos_plugins import qos_plugins
from services.node_agent.qos_plugins.qos_plugins import QosPlugins
from services.node_agent.settings import NAME, AgentEnvironment, AgentSettings, load
from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from services.node_agent.transport.backlog_files import BacklogFiles
from services.node_agent.transport.outbox import Outbox
from services.node_agent.transport.transport_interface import Transport
from shared.agents.actions import AnyAction
from shared.errors import KoordError
from shared.runtime import json_logging
from shared.runtime.task_cancellation import cancel_and_wait
from shared.settings import unknown_variables

if TYPE_CHECKING:
    from aiohttp.web import AppRunner, RouteDef

log = logging.getLogger(__name__)

HOOK_GATES = (
    "BatchResource",
    "CPUNormalization",
    "CPUSetAllocator",
    "GPUEnvInject",
    "GroupIdentity",
    "OOMScoreAdj",
    "RDMADeviceInject",
    "Resctrl",
)
"""Gates of hooks that act before a container starts."""
DRAIN_S = 5.0
"""Seconds at the end for the last report to be accepted."""


class HookClient(Protocol):
    """Brings the requests of the container runtime, or of a proxy before it, to the hooks."""

    def gauges(self) -> Iterator[Gauge]:
        """Yields the numbers of containers."""

    async def run(self) -> None:
        """Serves until it is cancelled."""


class MissingExtra(KoordError):
    """A gate or setting needs a library that is not installed."""

    def __init__(self, needs: str, reason: str) -> None:
        super().__init__(
            f"{needs} needs the extra `devices`: {reason}; pip install 'koordstream[node-agent,devices]', or turn it off"
        )


def run() -> int:
    """Runs until SIGTERM or SIGINT; returns the process's exit status.

    Raises:
        KoordError: a setting is invalid.
    """
    environment, settings = load(os.environ)
    json_logging.set_up(NAME, environment.log_level)
    for text in unknown_variables(NAME, (AgentSettings,), os.environ):
        log.warning(text)
    try:
        asyncio.run(_serve(environment, settings))
    except KoordError as error:
        log.error(str(error), extra={"error": type(error).__name__})  # noqa: TRY400  the text says what to do
        return 1
    return 0


async def _serve(environment: AgentEnvironment, settings: AgentSettings) -> None:
    slo_informer = NodeSloInformer(settings.node, Path(settings.state_dir))
    slo_informer.load()
    outbox = Outbox(settings.backlog_bytes, _backlog_files(settings))
    collector = Collector(
        Path(settings.proc_root),
        Path(settings.cgroup_root),
        settings.cgroup_parent,
        interval_s=settings.collect_interval_s,
        clock_ns=time.monotonic_ns,
        sys_root=Path(settings.sys_root),
    )
    gates = feature_gates.parse(settings.features)
    cold = _start_kidled(settings, gates, collector)
    agent = Agent(settings, collector, outbox, slo_informer)
    devices = NodeDevices(settings, gates, agent.sender, outbox.put)
    collector.gpus = devices.gpus
    pods = _start_qos_manager(agent, settings, slo_informer, gates) if settings.enforce else None
    audit = _start_audit(agent, settings, pods) if gates["AuditEvents"] else None
    _add_node_metric_series(agent, gates)
    readers = _audit_readers(settings, gates, audit)
    _load_plugins(agent, settings)
    client = hook_client(agent, settings, gates, pods)
    transport = _transport(environment, settings, outbox, slo_informer, pods)
    draining = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, draining.set)
    pages = await _pages(environment.http_addr, agent, transport, draining, _audit_routes(settings, readers))
    gc.collect()
    gc.freeze()  # the modules stay: later collections need not scan them again
    measuring = asyncio.create_task(agent.run(), name="measure")
    sending = asyncio.create_task(transport.run(), name="carry")
    finding = asyncio.create_task(devices.run(), name="devices")
    hooking = asyncio.create_task(_run_hooks(client), name="hooks")
    listing = asyncio.create_task(_serve_pod_resources(settings, gates, pods), name="pod resources")
    drained = asyncio.create_task(draining.wait())
    try:
        running = {measuring, sending, finding, hooking, listing, drained}
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            await ended
        await cancel_and_wait(measuring)  # its end queues the last report
        if agent.qos_manager is not None:
            agent.qos_manager.release()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await _wait_for_outbox(outbox, transport)
    finally:
        await cancel_and_wait(measuring, sending, finding, hooking, listing, drained)
        await transport.close()
        outbox.keep_all()
        for each in (audit, readers):
            if each is not None:
                each.close()
        collector.close()
        cold.stop()
        if pages is not None:
            await pages.cleanup()


def _start_kidled(settings: AgentSettings, gates: dict[str, bool], collector: Collector) -> KidledScan:
    """Switches the kernel's scan for cold pages on, where its gate is on and the kernel has it."""
    cold = KidledScan(Path(settings.sys_root))
    if gates["ColdPageCollector"]:
        cold.start()
        collector.cold = cold.started
    return cold


def _backlog_files(settings: AgentSettings) -> BacklogFiles | None:
    """Returns the reports on disk; None where the settings keep none."""
    if not settings.backlog_disk_bytes:
        return None
    folder, boot = Path(settings.state_dir) / "backlog", os.urandom(8).hex()
    return BacklogFiles(folder, settings.node, boot, settings.backlog_disk_bytes)


def _start_qos_manager(
    agent: Agent, settings: AgentSettings, slo_informer: NodeSloInformer, gates: dict[str, bool]
) -> NodePodsInformer:
    """Adds predictor and QoS manager to the agent; returns the informer of its pods."""
    state_dir = Path(settings.state_dir)
    pods = NodePodsInformer(settings.node, state_dir)
    pods.load()
    agent.predictor = PredictServer(pods, settings.prediction, state_dir, time.time_ns)
    agent.qos_manager = QosManager(
        HostPaths(
            Path(settings.cgroup_root),
            settings.cgroup_parent.strip("/"),
            Path(settings.sys_root),
            Path(settings.container_logs),
            Path(settings.proc_root),
            Path(settings.kubelet_root),
            Path(settings.terway_root),
            Path(settings.kubelet_config),
        ),
        slo_informer,
        pods,
        gates,
        report_action=agent.report_action,
        clock_ns=time.monotonic_ns,
        state_dir=state_dir,
        interval_s=settings.collect_interval_s,
        keep_quota=settings.disable_unset_cpu_quota,
    )
    return pods


def hook_client(
    agent: Agent, settings: AgentSettings, gates: dict[str, bool], pods: NodePodsInformer | None
) -> HookClient | None:
    """Returns the connection to the container runtime, or the server for a proxy before it; None where no gate needs it.

    Raises:
        BadStages: the settings disable a stage that does not exist.
        MissingExtra: the server's library is not installed.
    """
    if pods is None or agent.qos_manager is None or not any(gates[name] for name in HOOK_GATES):
        return None
    client: HookClient | None = None
    if settings.hook_server:
        try:
            from services.node_agent.hook_server.node_hook_server import hook_server
        except ImportError as error:
            raise MissingExtra("KOORD_NODE_AGENT_HOOK_SERVER", str(error)) from error
        client = hook_server(settings, gates, pods, agent.qos_manager)
    elif settings.nri:
        from services.node_agent.nri.node_hooks import nri_client

        client = nri_client(settings, gates, pods, agent.qos_manager)
    else:
        from services.node_agent.nri.node_hooks import missing_without_runtime, node_hooks

        hooks = node_hooks(settings, gates, pods, agent.qos_manager).hooks
        agent.qos_manager.runtime_side = RuntimeSide(start_only=missing_without_runtime(hooks))
    if client is not None:
        agent.more_gauges.append(client.gauges)
    return client


async def _run_hooks(client: HookClient | None) -> None:
    """Serves the container runtime; waits without a connection."""
    if client is None:
        await asyncio.Event().wait()
        return
    await client.run()


async def _serve_pod_resources(settings: AgentSettings, gates: dict[str, bool], pods: NodePodsInformer | None) -> None:
    """Serves the pod-resources API with allocated devices; waits where its gate is off.

    Raises:
        MissingExtra: its library is not installed.
    """
    if pods is None or not gates["PodResourcesProxy"]:
        await asyncio.Event().wait()
        return
    try:
        from services.node_agent.pod_resources.proxy import PodResourcesProxy
    except ImportError as error:
        raise MissingExtra("gate PodResourcesProxy", str(error)) from error

    kubelet = Path(settings.kubelet_root) / "pod-resources" / "kubelet.sock"
    await PodResourcesProxy(kubelet, Path(settings.pod_resources_proxy), pods).run()


def _transport(
    environment: AgentEnvironment,
    settings: AgentSettings,
    outbox: Outbox,
    slo_informer: NodeSloInformer,
    pods: NodePodsInformer | None,
) -> Transport:
    """Returns the transport that the settings select; only its client's library is imported."""
    if settings.transport == "mqtt" or (settings.transport == "auto" and environment.mqtt):
        from services.node_agent.transport.mqtt_transport import MqttTransport
        from shared.agents.broker import Broker

        return MqttTransport(
            settings.node, Broker.parse(environment.mqtt), outbox, slo_informer, pods, ca_file=environment.nats_ca
        )
    from services.node_agent.transport.nats_transport import ECHO_INTERVAL_S, NatsTransport
    from shared.bus import Bus

    bus = Bus(
        environment.nats,
        name=f"koord {NAME} {settings.node}",
        nkey=environment.nats_nkey,
        ca=environment.nats_ca,
        echo_interval_s=ECHO_INTERVAL_S,
    )
    return NatsTransport(settings.node, bus, outbox, slo_informer, pods)


def _start_audit(agent: Agent, settings: AgentSettings, pods: NodePodsInformer | None) -> AuditLog:
    """Records the agent's actions, and the cgroup files that it writes."""
    audit = AuditLog(
        Path(settings.audit_log_dir),
        verbosity=settings.audit_verbose,
        max_disk_mb=settings.audit_max_disk_space_mb,
        now_ns=time.time_ns,
    )

    def record(action: AnyAction) -> None:
        uid = getattr(action, "pod_uid", "")
        node_pods = pods.in_force if pods is not None else None
        known = node_pods.pods if node_pods is not None else ()
        audit.action(action, next((pod for pod in known if pod.metadata.uid == uid), None))

    agent.on_action = record
    if agent.qos_manager is not None:
        agent.qos_manager.on_write = audit.file_written
    return audit


def _add_node_metric_series(agent: Agent, gates: dict[str, bool]) -> None:
    """Adds the series of the NodeMetric to the metrics page, where their gate is on."""
    if gates["NodeMetricPromMetrics"]:
        series = NodeMetricSeries()
        agent.on_report = series.add
        agent.more_gauges.append(series.gauges)


def _load_plugins(agent: Agent, settings: AgentSettings) -> None:
    """Adds the QoS plugins that the settings switch on.

    Raises:
        BadPlugin: one of them is not installed, or cannot be loaded.
    """
    names = qos_plugins.switched_on(settings.qos_extension_plugins)
    if names and agent.qos_manager is not None:
        agent.qos_manager.plugins = QosPlugins.load(names, Path(settings.extra_configs))


def _audit_readers(settings: AgentSettings, gates: dict[str, bool], audit: AuditLog | None) -> AuditReaders | None:
    """Returns the readers of audit events over HTTP, where their gate is on and there are any events."""
    if audit is None or not gates["AuditEventsHTTPHandler"]:
        return None
    return AuditReaders(audit.files, settings.audit_max_concurrent_readers, time.monotonic)


def _audit_routes(settings: AgentSettings, readers: AuditReaders | None) -> "list[RouteDef]":
    if readers is None:
        return []
    from services.node_agent.audit.audit_http import audit_route

    return [audit_route(readers, settings.audit_max_events_limit)]


async def _pages(
    address: str, agent: Agent, transport: Transport, draining: asyncio.Event, more: "list[RouteDef]"
) -> "AppRunner | None":
    """Serves the pages; None without an address."""
    if not address:
        return None
    from services.node_agent.prometheus.exposition import AgentMetrics
    from shared.runtime.health import Pages, serve_pages
    from shared.runtime.status import Status

    def state() -> str:
        if draining.is_set():
            return "draining"
        return "leading" if agent.measured.is_set() else "starting"

    def status() -> Status:
        now = agent.figures()
        return Status(
            service=NAME,
            state=state(),
            epoch=0,
            lag=now.backlog,
            events_per_s=0,
            folded=now.sent,
            positions={},
            bus=transport.connected,
        )

    metrics = AgentMetrics(agent.figures, lambda: transport.connected)
    return await serve_pages(address, Pages(lambda: (state() == "leading", state()), metrics.text, status), more)


async def _wait_for_outbox(outbox: Outbox, transport: Transport) -> None:
    while len(outbox) and transport.connected:
        await asyncio.sleep(0.02)
