"""Baidu Kunlun XPUs, queried with `xpu_smi`. Source: spec/node-agent.md 6.3."""

import logging

from services.node_agent.device_daemon.device_info_file import GPU_CORE, GPU_MEMORY, ListedDevice, place_of
from services.node_agent.device_daemon.vendor_tool import ToolFailed, VendorFailed, VendorTool, number
from services.node_agent.devices.pci_bus import PciBus

log = logging.getLogger(__name__)

VENDOR_ID = "1d22"
_ADDRESS, _MEMORY, _MODEL = 0, 18, 21
"""Fields of a line of `xpu_smi -m`."""


def is_present(bus: PciBus) -> bool:
    """Reports whether the node has an XPU."""
    return bus.has_vendor(VENDOR_ID)


def list_xpus(tool: VendorTool, bus: PciBus) -> list[ListedDevice]:
    """Returns the XPUs; one whose own query fails is left out.

    Raises:
        ToolFailed, VendorFailed: the node's XPUs cannot be listed.
    """
    lines = [line.split() for line in tool.run("xpu_smi", "-m").splitlines() if line.strip()]
    if not lines or len(lines[0]) <= _MODEL:
        raise VendorFailed(f"`xpu_smi -m` prints {len(lines)} lines, and the first has no field {_MODEL + 1}")
    model = lines[0][_MODEL]
    resources = {GPU_MEMORY: f"{number(lines[0][_MEMORY], 'the memory of an XPU')}Mi", GPU_CORE: "100"}
    found = []
    for minor in range(len(lines)):
        try:
            words = tool.run("xpu_smi", "-m", "-d", f"/dev/xpu{minor}").split()
        except ToolFailed as error:
            log.error("an XPU is left out", extra={"minor": minor, "why": str(error)})  # noqa: TRY400  the text says it
            continue
        place = place_of(bus, words[_ADDRESS] if words else "")
        found.append(ListedDevice("kunlun", model, f"xpu-{minor}", str(minor), resources, place))
    return found
