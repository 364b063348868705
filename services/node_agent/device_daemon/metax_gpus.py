"""MetaX GPUs, queried with `mx-smi`. Source: spec/node-agent.md 6.3.

Differences from upstream: any kind of uncorrectable error counts, not the one that is printed last; `GPU#1` is not
taken for a part of `GPU#10`.
"""

import logging
import re

from services.node_agent.device_daemon.device_info_file import GPU_CORE, GPU_MEMORY, ListedDevice, place_of
from services.node_agent.device_daemon.vendor_tool import ToolFailed, VendorFailed, VendorTool, last_word
from services.node_agent.devices.pci_bus import PciBus

log = logging.getLogger(__name__)

VENDOR_ID = "9999"
_ERRORS = ("SRAM Uncorrectable", "DRAM Uncorrectable", "Double Bit ECC")
_MEMORY = re.compile(r"(\d{1,6}) ?GB")


def is_present(bus: PciBus) -> bool:
    """Reports whether the node has a MetaX GPU."""
    return bus.has_vendor(VENDOR_ID)


def list_gpus(tool: VendorTool, bus: PciBus) -> list[ListedDevice]:
    """Returns the GPUs; one whose own query fails is left out.

    Raises:
        ToolFailed, VendorFailed: the node's GPUs cannot be listed.
    """
    output = tool.run("mx-smi", "--show-hwinfo")
    models = [line.split() for line in output.splitlines() if "model name" in line.lower()]
    memories = [line for line in output.splitlines() if "memory capacity" in line.lower()]
    memory = _MEMORY.search(memories[0]) if memories else None
    if not models or len(models[0]) < 4 or memory is None:
        raise VendorFailed("`mx-smi --show-hwinfo` names no model, or no memory in GB")
    resources = {GPU_MEMORY: f"{memory[1]}Gi", GPU_CORE: "100"}
    found = []
    for minor in range(len(models)):
        try:
            found.append(_gpu(tool, models[0][3], minor, resources, bus))
        except (ToolFailed, VendorFailed) as error:
            log.error("a GPU is left out", extra={"minor": minor, "why": str(error)})  # noqa: TRY400  the text says it
    return found


def _gpu(tool: VendorTool, model: str, minor: int, resources: dict[str, str], bus: PciBus) -> ListedDevice:
    uuid = _word(tool.run("mx-smi", "--list"), rf"GPU#{minor}\b", 5).strip("()")
    if not uuid:
        raise VendorFailed(f"`mx-smi --list` has no UUID of GPU#{minor}")
    address = _word(tool.run("mx-smi", "--show-hwinfo", "-i", str(minor)), r"GPU#", 2)
    listed = ListedDevice("metax", model, uuid, str(minor), resources, place_of(bus, address))
    try:
        output = tool.run("mx-smi", "--count-ecc", "-i", str(minor))
    except ToolFailed as error:
        log.warning("errors of a GPU's memory are not counted", extra={"minor": minor, "why": str(error)})
        return listed
    counts = [last_word(line) for line in output.splitlines() if any(kind in line for kind in _ERRORS)]
    errors = sum(int(text) for text in counts if text.isdecimal())
    if not errors:
        return listed
    message = f"MX index {minor} has {errors} SRAM/DRAM Uncorrectable or Double Bit ECC errors"
    return listed._replace(healthy=False, error_code="ECC error", error_message=message)


def _word(output: str, pattern: str, place: int) -> str:
    """Returns a word of the first line with the pattern that is not of a part of a GPU (SGPU); empty without one."""
    lines = (line.split() for line in output.splitlines() if "SGPU" not in line and re.search(pattern, line))
    return next((words[place] for words in lines if len(words) > place), "")
