"""NVIDIA GPUs of the node: the library's cards, the PCI bus and critical errors -> devices.

Source: spec/node-agent.md 6.1, 6.2. Health beyond upstream, which marks only critical errors: uncorrectable ECC errors,
failed remapping of memory, cards that the driver has and the library cannot open, and a library that does not answer.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.node_agent.devices.device_conditions_and_labels import MAX_MINOR, unhealthy
from services.node_agent.devices.nvml_process_messages import NvidiaCard
from services.node_agent.devices.pci_bus import NotOnPci, PciBus, PciPlace
from shared.agents.device_inventory import DeviceCondition, DeviceFound
from shared.kube.device import GPU

GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
DRIVER = "nvidia"
VENDOR = "nvidia"
MAX_MEMORY = 1 << 44
"""Bytes of memory that are believed: 16 TiB."""
HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Critical errors that an application causes; the card stays healthy."""
MIG_LABEL = "node.koordinator.sh/gpu-mig-devices"
VIRTUALIZATION_LABEL = "node.koordinator.sh/gpu-virtualization"


class NvidiaGpus(NamedTuple):
    """GPUs by minor; model and driver version are empty where they differ or are not known."""

    devices: tuple[DeviceFound, ...] = ()
    model: str = ""
    driver_version: str = ""
    faults: tuple[str, ...] = ()


def last_known(before: Mapping[str, NvidiaCard], cards: Iterable[NvidiaCard]) -> dict[str, NvidiaCard]:
    """Returns PCI address -> the newest complete description of each card."""
    return dict(before) | {card.bus_id: card for card in cards if card.bus_id and not card.fault}


def find_gpus(
    cards: Iterable[NvidiaCard],
    known: Mapping[str, NvidiaCard],
    bus: PciBus,
    xids: Mapping[str, int],
    *,
    responding: bool,
) -> tuple[tuple[DeviceFound, ...], tuple[str, ...]]:
    """Returns the GPUs by minor, and a sentence for each card that is left out.

    Args:
        cards: the library's newest list.
        known: as `last_known` returns it. A card that the driver still serves and that the library cannot open is
            reported from it, as unhealthy.
        xids: UUID -> critical error that it had; an empty UUID stands for all cards.
        responding: the library answers; without, all cards are unhealthy.
    """
    on_bus = set(bus.bound_to(DRIVER))
    found: dict[int, DeviceFound] = {}
    faults = []
    for card, fault in _each(cards, known, on_bus):
        why = _unusable(card, found)
        if why:
            faults.append(f"GPU {card.uuid or card.bus_id or 'without an address'} is left out: {why}")
            continue
        conditions = unhealthy("NotResponding", "NVIDIA's library does not answer")
        if responding:
            conditions = _conditions(card, fault, xids)
        place = _place(card, bus)
        found[card.minor] = DeviceFound(
            GPU,
            card.minor,
            health=not conditions,
            id=card.uuid,
            resources={GPU_CORE: 100, GPU_MEMORY: card.memory, GPU_MEMORY_RATIO: 100},
            numa=place.numa_node if place is not None else -1,
            pcie_root=place.root if place is not None else "",
            pcie_switch=place.switch if place is not None else "",
            bus_id=card.bus_id if place is not None else "",
            labels=_labels(card),
            conditions=conditions,
        )
    return tuple(found[minor] for minor in sorted(found)), tuple(faults)


def model_of(cards: Iterable[NvidiaCard]) -> str:
    """Returns the model that all cards share, without the vendor: `NVIDIA A100 SXM4 80GB` -> `A100 SXM4 80GB`."""
    names = {card.name for card in cards if not card.fault}
    return names.pop().removeprefix("NVIDIA ") if len(names) == 1 else ""


def _each(
    cards: Iterable[NvidiaCard], known: Mapping[str, NvidiaCard], on_bus: set[str]
) -> Iterable[tuple[NvidiaCard, str]]:
    """Yields each card with the reason why the library cannot open it, empty when it can."""
    listed = set()
    for card in cards:
        listed.add(card.bus_id)
        if card.bus_id and on_bus and card.bus_id not in on_bus:
            continue  # it has left the bus; the library lists it until it is opened again
        if not card.fault:
            yield card, ""
        elif card.bus_id in known:
            yield known[card.bus_id], card.fault
        elif card.bus_id:
            yield card, card.fault
    for address in sorted(on_bus - listed):
        if address in known:
            yield known[address], "the driver has it, and NVIDIA's library does not list it"


def _unusable(card: NvidiaCard, found: Mapping[int, DeviceFound]) -> str:
    """Returns the reason why a card cannot be reported; empty when it can."""
    if card.fault:
        return card.fault
    if not card.uuid:
        return "it has no UUID"
    if not 0 <= card.minor <= MAX_MINOR:
        return f"its minor is {card.minor}; at most {MAX_MINOR} is believed"
    if card.minor in found:
        return f"minor {card.minor} is {found[card.minor].id}'s"
    if not 0 < card.memory <= MAX_MEMORY:
        return f"its memory is {card.memory} bytes; 1..{MAX_MEMORY} are believed"
    return ""


def _conditions(card: NvidiaCard, fault: str, xids: Mapping[str, int]) -> tuple[DeviceCondition, ...]:
    """Returns the conditions of a card; none while it is healthy."""
    if fault:
        return unhealthy("GpuLost", fault)
    xid = xids.get(card.uuid) or xids.get("")
    if xid is not None:
        return unhealthy(f"Xid{xid}", f"the card had critical error (XID) {xid}")
    if card.uncorrected:
        return unhealthy("EccUncorrectable", f"{card.uncorrected} uncorrectable ECC errors since the driver was loaded")
    if card.remap_failed:
        return unhealthy("RowRemapFailed", "a row of its memory could not be replaced")
    if not card.watched:
        return unhealthy("DeviceHealthCheckNotSupported", "device does not support health checking")
    return ()


def _place(card: NvidiaCard, bus: PciBus) -> PciPlace | None:
    try:
        return bus.place(card.bus_id)
    except NotOnPci:
        return None


def _labels(card: NvidiaCard) -> dict[str, str]:
    """Returns labels of cards that are split or virtual; whole ones have none."""
    labels = {} if card.mig is None else {MIG_LABEL: str(len(card.mig))}
    return labels if card.virtualization == "none" else labels | {VIRTUALIZATION_LABEL: card.virtualization}
