"""NVML, NVIDIA's management library: GPUs, and their usage by process. Source: spec/node-agent.md 6.1.

Nvml.h of CUDA 12.
"""

import ctypes
from ctypes import Structure, byref, c_char, c_uint, c_ulonglong, c_void_p
from typing import Any, NamedTuple

from shared.errors import KoordError

LIBRARY = "libnvidia-ml.so.1"
_OK, _INSUFFICIENT_SIZE = 0, 7
_UUID_BYTES = 96
_MOST_PROCESSES = 1024


class GpusUnavailable(KoordError):
    """This node has no NVIDIA GPU, or no driver."""


class Gpu(NamedTuple):
    """A GPU: index of its handle, minor number, bytes of memory."""

    place: int
    minor: int
    uuid: str
    memory_total: int


class ProcessUse(NamedTuple):
    """Usage of a GPU by one process: percent of its cores, bytes."""

    pid: int
    core: int
    memory: int


class _Memory(Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Process(Structure):
    _fields_ = [
        ("pid", c_uint),
        ("used_memory", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    ]


class _Sample(Structure):
    _fields_ = [
        ("pid", c_uint),
        ("at", c_ulonglong),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    ]


class Nvml:
    """The opened library.

    Attributes:
        gpus: those that responded when it was opened.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        """Opens the library.

        Raises:
            GpusUnavailable: it is absent, or finds no GPU.
        """
        try:
            self._lib = ctypes.CDLL(library)
        except OSError as error:
            raise GpusUnavailable(f"NVML cannot be opened: {error}") from error
        if self._lib.nvmlInit_v2() != _OK:
            raise GpusUnavailable("NVML finds no driver")
        self._handles: list[c_void_p] = []
        self.gpus = tuple(self._found())
        if not self.gpus:
            raise GpusUnavailable("NVML finds no GPU")

    def processes(self, gpu: Gpu) -> list[ProcessUse]:
        """Returns compute processes that were sampled on a GPU's cores lately; none when NVML fails."""
        handle = self._handles[gpu.place]
        running, count = (_Process * _MOST_PROCESSES)(), c_uint(_MOST_PROCESSES)
        if self._lib.nvmlDeviceGetComputeRunningProcesses_v3(handle, byref(count), running) != _OK:
            return []
        memory = {running[place].pid: running[place].used_memory for place in range(count.value)}
        newest: dict[int, tuple[int, int]] = {}
        for sample in self._samples(handle):
            if sample.pid in memory and sample.at >= newest.get(sample.pid, (0, 0))[0]:
                newest[sample.pid] = (sample.at, sample.sm)
        return [ProcessUse(pid, sm, memory[pid]) for pid, (_, sm) in sorted(newest.items())]

    def close(self) -> None:
        """Closes the library."""
        self._lib.nvmlShutdown()

    def _samples(self, handle: c_void_p) -> Any:
        count = c_uint(0)
        code = self._lib.nvmlDeviceGetProcessUtilization(handle, None, byref(count), c_ulonglong(0))
        if code not in {_OK, _INSUFFICIENT_SIZE} or not count.value:
            return ()  # no process has run lately
        samples = (_Sample * count.value)()
        if self._lib.nvmlDeviceGetProcessUtilization(handle, samples, byref(count), c_ulonglong(0)) != _OK:
            return ()
        return samples[: count.value]

    def _found(self) -> list[Gpu]:
        count, found = c_uint(), []
        if self._lib.nvmlDeviceGetCount_v2(byref(count)) != _OK:
            return []
        for number in range(count.value):
            handle, minor, memory, uuid = c_void_p(), c_uint(), _Memory(), (c_char * _UUID_BYTES)()
            codes = (
                self._lib.nvmlDeviceGetHandleByIndex_v2(c_uint(number), byref(handle)),
                self._lib.nvmlDeviceGetMinorNumber(handle, byref(minor)),
                self._lib.nvmlDeviceGetMemoryInfo(handle, byref(memory)),
                self._lib.nvmlDeviceGetUUID(handle, uuid, c_uint(_UUID_BYTES)),
            )
            if not any(codes):
                found.append(Gpu(len(self._handles), minor.value, uuid.value.decode(), memory.total))
                self._handles.append(handle)
        return found
