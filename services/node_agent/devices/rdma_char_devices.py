"""Character devices of RDMA cards, from sysfs: the number of each, which needs no /dev of the host."""

import re
from pathlib import Path

from services.node_agent.devices.pci_bus import ADDRESS
from services.node_agent.runtime_hooks.container_hooks import CharDevice

DEV = "/dev/infiniband"
_NUMBER = re.compile(r"(\d{1,4}):(\d{1,7})")
_VERBS = re.compile(r"uverbs\d{1,4}")


class NoCharDevice(LookupError):
    """A card, or the connection manager, without a character device."""


class RdmaCharDevices:
    """The character devices of one node's RDMA cards."""

    def __init__(self, sys: Path) -> None:
        self._sys = sys

    def connection_manager(self) -> CharDevice:
        """Returns `/dev/infiniband/rdma_cm`.

        Raises:
            NoCharDevice: the kernel has none.
        """
        return self._device("rdma_cm", self._sys / "class/misc/rdma_cm", "load the kernel module rdma_ucm")

    def verbs(self, address: str) -> CharDevice:
        """Returns the first verbs device of the function at a PCI address.

        Raises:
            NoCharDevice: there is no such function, or it has none.
        """
        if not ADDRESS.fullmatch(address):
            raise NoCharDevice(f"{address!r} is no PCI address")
        folder = self._sys / "bus/pci/devices" / address / "infiniband_verbs"
        try:
            names = sorted(each.name for each in folder.iterdir() if _VERBS.fullmatch(each.name))
        except OSError:
            names = []
        if not names:
            raise NoCharDevice(
                f"PCI function {address} has no verbs device in {folder}; load ib_uverbs, or give it back"
            )
        return self._device(names[0], folder / names[0], "load the kernel module ib_uverbs")

    def _device(self, name: str, folder: Path, remedy: str) -> CharDevice:
        try:
            match = _NUMBER.fullmatch((folder / "dev").read_text().strip())
        except OSError as error:
            raise NoCharDevice(f"{folder}/dev cannot be read ({error.strerror}); {remedy}") from error
        if match is None:
            raise NoCharDevice(f"{folder}/dev has no device number")
        return CharDevice(f"{DEV}/{name}", int(match[1]), int(match[2]))
