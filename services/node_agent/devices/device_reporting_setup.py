"""The parts that find, measure and report the devices of the node, put together from the settings."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from services.node_agent.collectors.gpu_usage import GpuCollector
from services.node_agent.devices.device_collector import DeviceCollector
from services.node_agent.devices.device_reporter import DeviceReporter
from services.node_agent.devices.nvidia_watch import Deadlines, NvidiaWatch, nvidia_command
from services.node_agent.devices.pci_bus import PciBus
from services.node_agent.report_builder import Sender
from services.node_agent.settings import AgentSettings
from services.node_agent.transport.outbox import Message

DEVICE_GATES = ("Accelerators", "RDMADevices", "FPGADevices")


class NodeDevices:
    """The devices of one node.

    Attributes:
        gpus: usage of GPUs; None where they are not measured.
    """

    def __init__(
        self,
        settings: AgentSettings,
        gates: Mapping[str, bool],
        sender: Sender,
        put: Callable[[Message], None],
    ) -> None:
        self.gpus: GpuCollector | None = None
        sys, proc = Path(settings.sys_root), Path(settings.proc_root)
        bus = PciBus(sys)
        self._watch: NvidiaWatch | None = None
        if gates["Accelerators"] and not settings.device_infos_only:
            self._watch = NvidiaWatch(nvidia_command(settings.nvml, settings.collect_interval_s), bus, Deadlines())
            self.gpus = GpuCollector(self._watch, proc)
        collector = DeviceCollector(sys, Path(settings.device_infos), gates, bus=bus, nvidia=self._watch)
        self._reporter = DeviceReporter(collector, sender, put) if any(gates[name] for name in DEVICE_GATES) else None

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._watch is not None:
                tasks.create_task(self._watch.run())
            if self._reporter is not None:
                tasks.create_task(self._reporter.run())
            await asyncio.Event().wait()
