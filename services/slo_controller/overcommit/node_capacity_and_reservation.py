"""The capacity of a node, and the reservation of the kubelet or of the node's annotation.

Source: spec/slo-controller.md 4.1; upstream pkg/slo-controller/noderesource/plugins/util/util.go, pkg/util/node.go.
"""

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from shared.domain.cpu_memory import ZERO, Amount
from shared.domain.cpu_set import BadCpuList, parse_cpus
from shared.kube.json_text import decode_with
from shared.kube.node import Node
from shared.kube.quantity import NANO, BadQuantity, nanos

RESERVATION = "node.koordinator.sh/reservation"


class _Reservation(msgspec.Struct, frozen=True):
    resources: dict[str, str | int | float] | None = None
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")


_decoder = msgspec.json.Decoder(_Reservation)


def capacity_of(node: Node) -> Amount:
    """Returns cpu and memory of the node's capacity; the formulas use it instead of allocatable (quirk Q4)."""
    return amount_of(node.status.capacity)


def reserved_of(node: Node) -> Amount:
    """Returns the larger of the kubelet's and the annotation's reservation."""
    kubelet = capacity_of(node).minus(amount_of(node.status.allocatable)).largest(ZERO)
    return kubelet.largest(_annotated((node.metadata.annotations or {}).get(RESERVATION)))


def amount_of(quantities: Mapping[str, str] | None) -> Amount:
    """Returns cpu and memory of a resource list; 0 for a quantity that is absent or cannot be read."""
    return Amount(_nanos(quantities, "cpu"), _nanos(quantities, "memory"))


def _annotated(text: str | None) -> Amount:
    """Reads a reservation: CPUs by number take precedence over an amount of cpu. One that cannot be read reserves nothing."""
    if not text:
        return ZERO
    try:
        reservation = decode_with(_decoder, text)
        resources = {name: nanos(str(size)) for name, size in (reservation.resources or {}).items()}
    except (msgspec.DecodeError, BadQuantity):
        return ZERO
    if reservation.reserved_cpus:
        with suppress(BadCpuList):  # upstream falls back to the amount of cpu
            resources["cpu"] = len(parse_cpus(reservation.reserved_cpus)) * NANO
    return Amount(resources.get("cpu", 0), resources.get("memory", 0))


def _nanos(quantities: Mapping[str, str] | None, name: str) -> int:
    try:
        return nanos((quantities or {}).get(name, "0"))
    except BadQuantity:
        return 0
