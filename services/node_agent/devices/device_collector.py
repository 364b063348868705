"""Collects all devices of the node into the content of an inventory. Source: spec/node-agent.md 6.1, 6.2."""

from collections.abc import Mapping
from pathlib import Path

from services.node_agent.devices.device_conditions_and_labels import label_value
from services.node_agent.devices.fpga_cards import find_fpgas
from services.node_agent.devices.nvidia_gpus import DRIVER, VENDOR
from services.node_agent.devices.nvidia_watch import NvidiaWatch
from services.node_agent.devices.pci_bus import PciBus
from services.node_agent.devices.rdma_cards import find_rdma_cards
from services.node_agent.devices.xpu_device_infos import BadDeviceInfo, InfoDevices, read_device_infos
from shared.agents.device_inventory import Devices
from shared.kube.device import GPU, GPU_DRIVER, GPU_MODEL, GPU_VENDOR, PARTITION_POLICY

MAX_REASON = 512


class DeviceCollector:
    """Reads the devices of one node.

    Attributes:
        faults: sentences on cards that were left out by the last `collect`.
    """

    def __init__(
        self,
        sys: Path,
        device_infos: Path,
        gates: Mapping[str, bool],
        *,
        bus: PciBus,
        nvidia: NvidiaWatch | None,
    ) -> None:
        """Prepares the collection.

        Args:
            device_infos: folder of the device daemons' files.
            nvidia: the GPUs of NVIDIA's library; None: all GPUs are in device infos.
        """
        self.faults: tuple[str, ...] = ()
        self._sys, self._device_infos, self._gates = sys, device_infos, gates
        self._bus, self._nvidia = bus, nvidia

    @property
    def settled(self) -> bool:
        """Reports whether all sources have been read once: before, cards would look as if they had vanished."""
        return self._nvidia is None or self._nvidia.settled

    def collect(self) -> Devices:
        """Returns all devices of the enabled types."""
        faults: list[str] = []
        devices = Devices()
        if self._gates["Accelerators"]:
            devices = self._accelerators(faults)
        found = list(devices.devices)
        if self._gates["FPGADevices"]:
            fpgas, left_out = find_fpgas(self._sys, self._bus)
            found += fpgas
            faults += left_out
        if self._gates["RDMADevices"]:
            cards, left_out = find_rdma_cards(self._sys, self._bus)
            found += cards
            faults += left_out
        self.faults = tuple(faults)
        found.sort(key=lambda one: (one.type, one.minor))
        return Devices(tuple(found), devices.unread, devices.labels, devices.partitions)

    def _accelerators(self, faults: list[str]) -> Devices:
        """Returns the GPUs and what counts as such; device infos take precedence over NVIDIA's library."""
        infos, unread = InfoDevices(), {}
        try:
            infos = read_device_infos(self._device_infos)
        except BadDeviceInfo as error:
            unread[GPU] = str(error)[:MAX_REASON]
        if infos.devices:
            labels = {GPU_VENDOR: infos.vendor, GPU_MODEL: infos.model}
            if infos.honor_partitions is not None:
                labels[PARTITION_POLICY] = "Honor" if infos.honor_partitions else "Prefer"
            return Devices(infos.devices, {}, _valid(labels), infos.partitions)
        if self._nvidia is None:
            return Devices(unread=unread)
        gpus = self._nvidia.gpus()
        faults += gpus.faults
        if not gpus.devices:
            if GPU not in unread and self._bus.bound_to(DRIVER):
                unread[GPU] = f"NVIDIA's driver serves cards, and its library lists none: {self._nvidia.reason}"[
                    :MAX_REASON
                ]
            return Devices(unread=unread)
        labels = {GPU_VENDOR: VENDOR, GPU_MODEL: gpus.model, GPU_DRIVER: gpus.driver_version}
        return Devices(gpus.devices, unread, _valid(labels))


def _valid(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns labels with values that Kubernetes accepts, without empty ones."""
    values = {name: label_value(text) for name, text in labels.items()}
    return {name: text for name, text in values.items() if text}
