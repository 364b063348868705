"""The CPUs, the parts of GPUs and the amounts of NUMA nodes that a pod or Reservation was given, from its annotations."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from shared.domain.cpu_set import parse_cpus
from shared.kube.quantity import nanos
from shared.kube.system_annotations import DEVICE_ALLOCATED, RESOURCE_STATUS

CPU, GPU, ZONE = "CPU", "GPU", "NUMA node"


class Part(NamedTuple):
    """A CPU, of which there is one, a GPU in percent, or the cpu of a NUMA node in nanos."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


Shares = Counter[Part]


class _Zone(msgspec.Struct):
    node: int = 0
    resources: dict[str, str] = {}


class _Status(msgspec.Struct):
    cpuset: str = ""
    zones: list[_Zone] | None = msgspec.field(default=None, name="numaNodeResources")


class _Device(msgspec.Struct):
    minor: int
    resources: dict[str, str] = {}


def shares_in(annotations: Mapping[str, str]) -> Shares:
    """Returns what the annotations of a placement give."""
    found = Shares()
    if text := annotations.get(RESOURCE_STATUS):
        status = msgspec.json.decode(text, type=_Status)
        found.update(Part(CPU, cpu) for cpu in parse_cpus(status.cpuset))
        for zone in status.zones or ():
            found[Part(ZONE, zone.node)] += nanos(zone.resources.get("cpu", "0"))
    if text := annotations.get(DEVICE_ALLOCATED):
        for device in msgspec.json.decode(text, type=dict[str, list[_Device]]).get("gpu", ()):
            found[Part(GPU, device.minor)] += int(device.resources["koordinator.sh/gpu-core"])
    return found


def exceeded(holders: Iterable[tuple[str, Shares]], limits: Mapping[str, int]) -> Iterator[str]:
    """Yields the parts of which the holders have more than there is.

    Args:
        holders: the name of each and what it has.
        limits: kind of part -> its size.
    """
    total, names = Shares(), dict[Part, list[str]]()
    for name, shares in holders:
        for part, size in shares.items():
            if size > 0:
                total[part] += size
                names.setdefault(part, []).append(name)
    for part, size in total.items():
        if size > limits[part.kind]:
            yield f"{part} belongs to {', '.join(names[part])}: {size} of {limits[part.kind]}"
