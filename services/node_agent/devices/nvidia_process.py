"""The process that calls NVIDIA's library (NVML, through nvidia-ml-py) for the agent.

A call of the library can hang in the driver, or end the process: the agent reads lines from this process instead, with
a deadline. Source: spec/node-agent.md 6.1, 6.2.

    python -m services.node_agent.devices.nvidia_process LIBRARY SAMPLE_INTERVAL_S CARDS_INTERVAL_S
"""

import contextlib
import ctypes
import sys
import time
from collections.abc import Callable
from typing import Any

import pynvml

from services.node_agent.devices import nvml_process_messages
from services.node_agent.devices.nvml_process_messages import (
    CardsListed,
    CriticalError,
    LibraryUnavailable,
    MigDevice,
    NvidiaCard,
    UsageSampled,
)

_VIRTUALIZATION = ("none", "passthrough", "vgpu", "host-vgpu", "host-vsga")
_MAX_TEXT = 128


def main(arguments: list[str]) -> int:
    """Writes messages to standard output until the agent closes it; returns the exit status."""
    library, sample_interval_s, cards_interval_s = arguments[0], float(arguments[1]), float(arguments[2])
    try:
        # The library of another path is found under its own name (SONAME) from here on.
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        pynvml.nvmlInit()
    except OSError as error:
        _send(LibraryUnavailable(str(error)[:_MAX_TEXT]))
        return 1
    except pynvml.NVMLError as error:
        _send(LibraryUnavailable(f"NVML finds no driver: {error}"[:_MAX_TEXT]))
        return 1
    with contextlib.suppress(BrokenPipeError):
        _Watch(sample_interval_s, cards_interval_s).run()
    return 0


class _Watch:
    """Lists cards, samples their usage and waits for critical errors, in turn."""

    def __init__(self, sample_interval_s: float, cards_interval_s: float) -> None:
        self._sample_interval_s, self._cards_interval_s = sample_interval_s, cards_interval_s
        self._events = _optional(pynvml.nvmlEventSetCreate)
        self._watched: dict[str, bool] = {}
        self._handles: dict[str, Any] = {}

    def run(self) -> None:
        """Runs until standard output is closed.

        Raises:
            BrokenPipeError: it is.
        """
        listed_s = -self._cards_interval_s
        while True:
            now_s = time.monotonic()
            if now_s - listed_s >= self._cards_interval_s:
                listed_s = now_s
                _send(CardsListed(str(_optional(pynvml.nvmlSystemGetDriverVersion) or ""), self._cards()))
            _send(UsageSampled({uuid: _processes(handle) for uuid, handle in self._handles.items()}))
            self._wait_until(now_s + self._sample_interval_s)

    def _cards(self) -> tuple[NvidiaCard, ...]:
        count = _optional(pynvml.nvmlDeviceGetCount) or 0
        handles, cards = {}, []
        for index in range(min(count, 256)):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                card = self._card(handle)
            except pynvml.NVMLError as error:
                cards.append(NvidiaCard(fault=str(error)[:_MAX_TEXT]))
                continue
            cards.append(card)
            if card.uuid and not card.fault:
                handles[card.uuid] = handle
        self._handles = handles
        return tuple(cards)

    def _card(self, handle: Any) -> NvidiaCard:
        """Describes one card. The first calls must succeed, those of features that cards lack need not."""
        bus_id = _address(handle)
        try:
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
            minor = pynvml.nvmlDeviceGetMinorNumber(handle)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total
            name = _text(pynvml.nvmlDeviceGetName(handle))
        except (pynvml.NVMLError, UnicodeDecodeError) as error:
            return NvidiaCard(bus_id=bus_id, fault=str(error)[:_MAX_TEXT])
        remapped = _optional(pynvml.nvmlDeviceGetRemappedRows, handle)
        mode = _optional(pynvml.nvmlDeviceGetVirtualizationMode, handle) or 0
        return NvidiaCard(
            bus_id=bus_id,
            uuid=uuid,
            minor=minor,
            memory=memory,
            name=name,
            uncorrected=_optional(
                pynvml.nvmlDeviceGetTotalEccErrors,
                handle,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            ),
            remap_failed=bool(remapped and remapped[3]),
            watched=self._watch(uuid, handle),
            mig=_mig_devices(handle),
            virtualization=_VIRTUALIZATION[mode] if mode < len(_VIRTUALIZATION) else "unknown",
        )

    def _watch(self, uuid: str, handle: Any) -> bool:
        """Registers a card for critical errors, once; reports whether it supports them."""
        if self._events is None:
            return False
        if uuid not in self._watched:
            try:
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
                self._watched[uuid] = True
            except pynvml.NVMLError as error:
                # Other failures are repeated with the next listing; the card counts as watched until then, as upstream.
                if error.value != pynvml.NVML_ERROR_NOT_SUPPORTED:
                    return True
                self._watched[uuid] = False
        return self._watched[uuid]

    def _wait_until(self, due_s: float) -> None:
        """Sends critical errors until a time."""
        while (left_s := due_s - time.monotonic()) > 0:
            if self._events is None:
                time.sleep(left_s)
                return
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, max(1, int(left_s * 1000)))
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    time.sleep(max(0.0, due_s - time.monotonic()))
                continue
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                uuid = _optional(pynvml.nvmlDeviceGetUUID, event.device)
                _send(CriticalError(_text(uuid or ""), event.eventData))


def _mig_devices(handle: Any) -> tuple[MigDevice, ...] | None:
    mode = _optional(pynvml.nvmlDeviceGetMigMode, handle)
    if not mode or not mode[0]:
        return None
    found = []
    for index in range(min(64, _optional(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)):
        instance = _optional(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if instance is None:
            continue  # places for instances are numbered, and most are empty
        uuid = _optional(pynvml.nvmlDeviceGetUUID, instance)
        memory = _optional(pynvml.nvmlDeviceGetMemoryInfo, instance)
        if uuid and memory is not None:
            found.append(MigDevice(_text(uuid), memory.total))
    return tuple(found)


def _processes(handle: Any) -> tuple[tuple[int, int, int], ...]:
    """Returns compute processes that were sampled on a card's cores lately."""
    running = _optional(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
    memory = {process.pid: process.usedGpuMemory or 0 for process in running}
    newest: dict[int, tuple[int, int]] = {}
    for sample in (_optional(pynvml.nvmlDeviceGetProcessUtilization, handle, 0) or ()) if memory else ():
        if sample.pid in memory and sample.timeStamp >= newest.get(sample.pid, (0, 0))[0]:
            newest[sample.pid] = (sample.timeStamp, sample.smUtil)
    return tuple((pid, core, memory[pid]) for pid, (_, core) in sorted(newest.items()))


def _address(handle: Any) -> str:
    """Returns a card's PCI address as sysfs has it, `0000:3b:00.0`; empty when the library does not give it."""
    found = _optional(pynvml.nvmlDeviceGetPciInfo, handle)
    if found is None:
        return ""
    function = _text(found.busId).rpartition(".")[2] or "0"
    return f"{found.domain:04x}:{found.bus:02x}:{found.device:02x}.{function}"[:_MAX_TEXT]


def _text(found: Any) -> str:
    return (found.decode(errors="replace") if isinstance(found, bytes) else str(found))[:_MAX_TEXT]


def _optional(call: Callable[..., Any], *arguments: Any) -> Any:
    """Calls the library; None when the call fails, as those of features do that a card or driver lacks."""
    try:
        return call(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def _send(message: nvml_process_messages.Message) -> None:
    sys.stdout.buffer.write(nvml_process_messages.encode(message))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
