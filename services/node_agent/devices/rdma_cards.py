"""RDMA cards from sysfs. Source: spec/node-agent.md 6.1, 6.2."""

import re
from pathlib import Path

from services.node_agent.devices.device_conditions_and_labels import MAX_MINOR, unhealthy
from services.node_agent.devices.pci_bus import NotOnPci, PciBus
from shared.agents.device_inventory import DeviceCondition, DeviceFound, VirtualFunction, VirtualFunctionGroup
from shared.kube.device import RDMA

RDMA_RESOURCE = "koordinator.sh/rdma"
NETWORK_CLASS = 0x02
_NAME = re.compile(r"mlx\d+_(\d{1,9})")


def find_rdma_cards(sys: Path, bus: PciBus) -> tuple[list[DeviceFound], list[str]]:
    """Returns the RDMA cards by minor, and a sentence for each that cannot be used.

    A card is a network function of PCI that is no virtual one and has RDMA devices. The first of those by name is the
    card's own, and numbers it: `mlx5_2` has minor 2.
    """
    found: dict[int, DeviceFound] = {}
    faults = []
    for function in bus.functions():
        if function.base_class != NETWORK_CLASS or bus.is_virtual(function.address):
            continue
        names = bus.names_in(function.address, "infiniband")
        if not names:
            continue
        match = _NAME.fullmatch(names[0])
        minor = int(match[1]) if match else MAX_MINOR + 1
        if minor > MAX_MINOR or minor in found:
            why = f"minor {minor} of {found[minor].id}" if minor in found else f"no number below {MAX_MINOR + 1}"
            faults.append(f"RDMA card {function.address} is left out: its device {names[0]} has {why}")
            continue
        try:
            place = bus.place(function.address)
        except NotOnPci as error:
            faults.append(f"RDMA card {function.address} is left out: {error}")
            continue
        conditions = _conditions(sys, names[0])
        virtual = tuple(VirtualFunction(address) for address in bus.virtual_functions(function.address))
        found[minor] = DeviceFound(
            RDMA,
            minor,
            health=not conditions,
            id=function.address,
            resources={RDMA_RESOURCE: 100},
            numa=place.numa_node,
            pcie_root=place.root,
            pcie_switch=place.switch,
            bus_id=function.address,
            virtual_functions=(VirtualFunctionGroup(virtual),) if virtual else (),
            conditions=conditions,
        )
    return [found[minor] for minor in sorted(found)], faults


def _conditions(sys: Path, name: str) -> tuple[DeviceCondition, ...]:
    """Returns the conditions of an RDMA device; none while all of its ports are active."""
    ports = sys / "class/infiniband" / name / "ports"
    try:
        states = {port.name: (port / "state").read_text().strip() for port in sorted(ports.iterdir())}
    except OSError as error:
        return unhealthy("PortStateUnknown", f"the ports of {name} cannot be read: {error}")
    inactive = [f"{port} is {state or 'without a state'}" for port, state in states.items() if "ACTIVE" not in state]
    if inactive or not states:
        return unhealthy("PortDown", f"{name}: port {', port '.join(inactive)}" if inactive else f"{name} has no port")
    return ()
