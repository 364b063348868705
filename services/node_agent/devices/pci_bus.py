"""PCI functions of the node and their place in the topology, from sysfs. Source: spec/node-agent.md 6.1."""

import re
from pathlib import Path
from typing import NamedTuple

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]")
"""A PCI address in lower case: domain, bus, device, function."""
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_MAX_NUMA_NODE = 1023


class PciFunction(NamedTuple):
    """One function of a PCI card.

    Attributes:
        address: `0000:3b:00.0`.
        class_code: base class, subclass and interface, 24 bits; a network controller has 0x02 as base class.
        vendor, product: ids, four hexadecimal digits in lower case.
    """

    address: str
    class_code: int
    vendor: str
    product: str

    @property
    def base_class(self) -> int:
        """The highest byte of the class."""
        return self.class_code >> 16


class PciPlace(NamedTuple):
    """Place of a function.

    Attributes:
        numa_node: the kernel's; 0 where it has none (-1), as upstream reports it.
        root: the root complex, `pci0000:3a`.
        switch: address of the upstream port of the nearest PCIe switch; empty below a root port without one.
    """

    numa_node: int
    root: str
    switch: str


class NotOnPci(LookupError):
    """An address that sysfs does not have, or has without a place."""


class PciBus:
    """The PCI functions below one sysfs. A function that vanishes while it is read counts as absent.

    A function's class and ids are read once, as long as its address stays listed.
    """

    def __init__(self, sys: Path) -> None:
        self._devices = sys / "bus/pci/devices"
        self._drivers = sys / "bus/pci/drivers"
        self._read: dict[str, PciFunction] = {}

    def functions(self) -> list[PciFunction]:
        """Returns all functions by address; those whose files cannot be read are left out."""
        addresses = [each.name for each in _listed(self._devices) if ADDRESS.fullmatch(each.name)]
        found = (self._read.get(address) or self._function(address) for address in addresses)
        self._read = {one.address: one for one in found if one is not None}
        return list(self._read.values())

    def has_vendor(self, vendor: str, without: frozenset[str] = frozenset()) -> bool:
        """Reports whether there is a function of a vendor, other than the products `without`."""
        return any(one.vendor == vendor and one.product not in without for one in self.functions())

    def bound_to(self, driver: str) -> list[str]:
        """Returns the addresses of the functions that a driver serves."""
        return [each.name for each in _listed(self._drivers / driver) if ADDRESS.fullmatch(each.name)]

    def place(self, address: str) -> PciPlace:
        """Returns the place of a function.

        Raises:
            NotOnPci: there is no such function, or its path names no root complex.
        """
        folder = self._devices / address
        try:
            parts = folder.resolve(strict=True).parts
            node = int((folder / "numa_node").read_text())
        except (OSError, ValueError) as error:
            raise NotOnPci(f"PCI function {address}: {error}") from error
        start = next((index for index, part in enumerate(parts) if _ROOT.fullmatch(part)), None)
        if start is None:
            raise NotOnPci(f"PCI function {address} is below no root complex: {'/'.join(parts)}")
        bridges = parts[start + 1 : -1]
        # root port, upstream port of the switch, downstream port of the switch, function
        switch = bridges[-2] if len(bridges) >= 3 else ""
        return PciPlace(node if 0 <= node <= _MAX_NUMA_NODE else 0, parts[start], switch)

    def is_virtual(self, address: str) -> bool:
        """Reports whether a function is a virtual one (SR-IOV)."""
        return (self._devices / address / "physfn").exists()

    def virtual_functions(self, address: str) -> list[str]:
        """Returns the addresses of the virtual functions that are configured on a function, in order."""
        folder = self._devices / address
        try:
            if int((folder / "sriov_numvfs").read_text()) <= 0:
                return []
        except (OSError, ValueError):
            return []
        links = (each for each in _listed(folder) if re.fullmatch(r"virtfn\d+", each.name))
        found = (each.resolve().name for each in links)
        return sorted(name for name in found if ADDRESS.fullmatch(name))

    def names_in(self, address: str, folder: str) -> list[str]:
        """Returns the names in a folder of a function, such as its RDMA devices in `infiniband`; none without it."""
        return [each.name for each in _listed(self._devices / address / folder)]

    def _function(self, address: str) -> PciFunction | None:
        """Reads one function; None when one of its files cannot be read."""
        class_code, vendor, product = (
            _hexadecimal(self._devices / address / name) for name in ("class", "vendor", "device")
        )
        if class_code is None or vendor is None or product is None:
            return None
        return PciFunction(address, class_code, f"{vendor:04x}", f"{product:04x}")


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _hexadecimal(file: Path) -> int | None:
    try:
        return int(file.read_text(), 16)
    except (OSError, ValueError):
        return None
