"""Huawei Ascend NPUs, queried with `npu-smi`. Source: spec/node-agent.md 6.3.

Differences from upstream: memory and cores are those of the first card, not of cards 1 and 0; device files are paired
with cards in the order of their numbers, not of their texts; network cards of Huawei do not count as NPUs.
"""

import logging
import re
from pathlib import Path

from services.node_agent.device_daemon.device_info_file import GPU_MEMORY, ListedDevice, place_of
from services.node_agent.device_daemon.vendor_tool import ToolFailed, VendorFailed, VendorTool, last_word, number
from services.node_agent.devices.pci_bus import PciBus

log = logging.getLogger(__name__)

VENDOR_ID = "19e5"
NOT_NPUS = frozenset({"1710", "1711"})
_OTHER_CLASSES = frozenset({0x01, 0x02, 0x06})
"""Base classes of storage, network and bridges."""
_DEVICE_FILE = re.compile(r"davinci(\d{1,4})")
_MEMORY_310P3 = "21527Mi"
_CORES = {"Ascend-310P3": 8}
_CPUS = {"Ascend-910B": 0, "Ascend-910B2": 6, "Ascend-910B3": 7, "Ascend-910B4": 7}


def is_present(bus: PciBus) -> bool:
    """Reports whether the node has an NPU."""
    return any(
        one.vendor == VENDOR_ID and one.product not in NOT_NPUS and one.base_class not in _OTHER_CLASSES
        for one in bus.functions()
    )


def list_npus(tool: VendorTool, bus: PciBus, dev: Path) -> list[ListedDevice]:
    """Returns the NPUs; one whose own query fails is left out.

    Raises:
        ToolFailed, VendorFailed: the node's NPUs cannot be listed.
    """
    model = _model(tool)
    cards = [last_word(line) for line in tool.run("npu-smi", "info", "-l").splitlines() if "NPU ID" in line]
    minors = sorted(int(match[1]) for each in dev.glob("davinci*") if (match := _DEVICE_FILE.fullmatch(each.name)))
    if not cards or len(minors) < len(cards):
        raise VendorFailed(f"npu-smi lists {len(cards)} NPUs, and {dev} has {len(minors)} files davinci*")
    for card in cards:
        number(card, "an NPU ID")
    resources = {
        GPU_MEMORY: _memory(tool, cards[0]),
        "huawei.com/npu-core": str(_CORES[model] if model in _CORES else _cores(tool, cards[0])),
        "huawei.com/npu-cpu": str(_CPUS[model] if model in _CPUS else _cpus(tool, cards[0])),
        "huawei.com/npu-dvpp": "100",
    }
    found = []
    for card, minor in zip(cards, minors, strict=False):
        try:
            board = tool.run("npu-smi", "info", "-t", "board", "-i", card)
        except ToolFailed as error:
            log.error("an NPU is left out", extra={"npu": card, "why": str(error)})  # noqa: TRY400  the text says it
            continue
        found.append(_npu(board, model, card, minor, resources, bus))
    return found


def _npu(board: str, model: str, card: str, minor: int, resources: dict[str, str], bus: PciBus) -> ListedDevice:
    address, faults = "", 0
    for line in board.splitlines():
        if "PCIe Bus Info" in line:
            address = last_word(line)
        elif "Chip Fault" in line:
            text = last_word(line)
            faults += int(text) if text.isdecimal() else 0
    listed = ListedDevice("huawei", model, f"npu-{card}-{minor}", str(minor), resources, place_of(bus, address))
    if not faults:
        return listed
    message = f"NPU index {card} has {faults} chip faults"
    return listed._replace(healthy=False, error_code="chip error", error_message=message)


def _model(tool: VendorTool) -> str:
    """Returns the model from the table of chips: its second line ends with `Ascend 910B3`."""
    lines = tool.run("npu-smi", "info", "-m").splitlines()
    words = lines[1].split() if len(lines) > 1 else []
    if len(words) < 2:
        raise VendorFailed("`npu-smi info -m` names no chip")
    return f"{words[-2]}-{words[-1]}"


def _memory(tool: VendorTool, card: str) -> str:
    try:
        output = tool.run("npu-smi", "info", "-t", "memory", "-i", card)
    except ToolFailed as error:
        if "Command or option is not found" in error.output:  # of 310P3
            return _MEMORY_310P3
        raise
    sizes = [line for line in output.splitlines() if "DDR Capacity" in line or "HBM Capacity" in line]
    return f"{sum(number(last_word(line), 'the memory of an NPU') for line in sizes)}Mi"


def _cores(tool: VendorTool, card: str) -> int:
    output = tool.run("npu-smi", "info", "-t", "common", "-i", card)
    return sum(number(last_word(line), "Aicore Count") for line in output.splitlines() if "Aicore Count" in line)


def _cpus(tool: VendorTool, card: str) -> int:
    output = tool.run("npu-smi", "info", "-t", "cpu-num-cfg", "-i", card)
    return sum(number(last_word(line), "the number of AI CPUs") for line in output.splitlines() if "AI" in line)
