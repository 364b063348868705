"""FPGAs from sysfs: the kernel's FPGA managers (beyond upstream, which finds none).

Every driver that can program an FPGA registers a manager: Intel's DFL cards, Xilinx's Alveo cards with XRT, Zynq.
"""

import re
from pathlib import Path

from services.node_agent.devices.device_conditions_and_labels import MAX_MINOR, unhealthy
from services.node_agent.devices.pci_bus import ADDRESS, NotOnPci, PciBus
from shared.agents.device_inventory import DeviceCondition, DeviceFound
from shared.kube.device import FPGA

FPGA_RESOURCE = "koordinator.sh/fpga"
_MANAGER = re.compile(r"fpga(\d{1,9})")
_BROKEN = ("error", "power off")
"""States of a manager in which its FPGA cannot be used (Documentation/ABI/testing/sysfs-class-fpga-manager)."""


def find_fpgas(sys: Path, bus: PciBus) -> tuple[list[DeviceFound], list[str]]:
    """Returns the FPGAs on PCI by minor, and a sentence for each that cannot be used.

    The minor is the manager's number. An FPGA that is part of the processor board has no PCI address and is left out.
    """
    found, faults = [], []
    for folder in sorted((sys / "class/fpga_manager").glob("fpga*")):
        match = _MANAGER.fullmatch(folder.name)
        if match is None or int(match[1]) > MAX_MINOR:
            faults.append(f"FPGA manager {folder.name} is left out: its name has no number below {MAX_MINOR + 1}")
            continue
        address = next((part for part in reversed(folder.resolve().parts) if ADDRESS.fullmatch(part)), None)
        try:
            place = bus.place(address) if address is not None else None
        except NotOnPci as error:
            faults.append(f"FPGA manager {folder.name} is left out: {error}")
            continue
        if place is None or address is None:
            faults.append(f"FPGA manager {folder.name} is left out: it is not on PCI")
            continue
        conditions = _conditions(folder)
        found.append(
            DeviceFound(
                FPGA,
                int(match[1]),
                health=not conditions,
                id=address,
                resources={FPGA_RESOURCE: 100},
                numa=place.numa_node,
                pcie_root=place.root,
                pcie_switch=place.switch,
                bus_id=address,
                conditions=conditions,
            )
        )
    return sorted(found, key=lambda one: one.minor), faults


def _conditions(folder: Path) -> tuple[DeviceCondition, ...]:
    """Returns the conditions of an FPGA; none while its manager can program it."""
    try:
        state = (folder / "state").read_text().strip()
    except OSError as error:
        return unhealthy("StateUnknown", f"the state cannot be read: {error}")
    if any(word in state for word in _BROKEN):
        return unhealthy("ManagerState", f"the FPGA manager is in state {state!r}")
    return ()
