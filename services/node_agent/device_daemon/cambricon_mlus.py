"""Cambricon MLUs, queried with `cnmon`. Source: spec/node-agent.md 6.3."""

import logging
import re

from services.node_agent.device_daemon.device_info_file import GPU_CORE, GPU_MEMORY, ListedDevice, place_of
from services.node_agent.device_daemon.vendor_tool import ToolFailed, VendorFailed, VendorTool, last_word, number
from services.node_agent.devices.pci_bus import PciBus

log = logging.getLogger(__name__)

VENDOR_ID = "cabc"
_DEVICE = re.compile(r"Device\s*:\s*(\S.*)")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{1,2}")


def is_present(bus: PciBus) -> bool:
    """Reports whether the node has an MLU."""
    return bus.has_vendor(VENDOR_ID)


def list_mlus(tool: VendorTool, bus: PciBus) -> list[ListedDevice]:
    """Returns the MLUs; one whose own query fails is left out.

    Raises:
        ToolFailed, VendorFailed: the node's MLUs cannot be listed.
    """
    listed = tool.run("cnmon", "-l")
    count = sum("UUID" in line for line in listed.splitlines())
    model = next((word for word in listed.split() if "MLU" in word), "")
    if not model:
        raise VendorFailed("`cnmon -l` names no MLU")
    resources = {GPU_MEMORY: _memory(tool.run("cnmon", "info")), GPU_CORE: "100"}
    found = []
    for minor in range(count):
        try:
            found.append(_mlu(tool.run("cnmon", "info", "-c", str(minor)), model, minor, resources, bus))
        except (ToolFailed, VendorFailed) as error:
            log.error("an MLU is left out", extra={"minor": minor, "why": str(error)})  # noqa: TRY400  the text says it
    return found


def _memory(output: str) -> str:
    """Returns the memory of the first card: the line `Total : 81920 MiB` after `Physical Memory Usage`."""
    lines = output.splitlines()
    start = next((index for index, line in enumerate(lines) if "Physical Memory Usage" in line), len(lines))
    words = next((line.split() for line in lines[start : start + 2] if "Total" in line), [])
    if len(words) < 2:
        raise VendorFailed("`cnmon info` has no total of the physical memory")
    return f"{number(words[-2], 'the memory of an MLU')}Mi"


def _mlu(output: str, model: str, minor: int, resources: dict[str, str], bus: PciBus) -> ListedDevice:
    """Returns one card from its own output, in which `Device` is both its state and part of its PCI address."""
    texts = {"UUID": "", "NUMA node id": "", "Domain ID": "", "Bus num": "", "Function": ""}
    slot, state = "", ""
    for line in output.splitlines():
        for name in texts:
            if name in line and len(line.split()) >= 3:
                texts[name] = line.split()[2] if name == "UUID" else last_word(line)
        if match := _DEVICE.fullmatch(line.strip()):
            if _HEXADECIMAL.fullmatch(match[1]):
                slot = match[1]
            else:
                state = match[1]
    if not texts["UUID"]:
        raise VendorFailed(f"`cnmon info -c {minor}` names no UUID")
    address = f"{texts['Domain ID']}:{texts['Bus num']}:{slot}.{texts['Function']}"
    place = place_of(bus, address, texts["NUMA node id"])
    listed = ListedDevice("cambricon", model, texts["UUID"], str(minor), resources, place)
    if state == "Good":
        return listed
    return listed._replace(healthy=False, error_message=f"Device is unhealthy, status: {state or 'not reported'}")
