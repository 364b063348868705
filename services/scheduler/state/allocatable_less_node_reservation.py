"""Node reservation: resources that an annotation reserves are subtracted from a node's allocatable before any plugin
reads it.

    node.koordinator.sh/reservation:
    {"resources":{"cpu":"2"},"reservedCPUs":"0-5","applyPolicy":"Default|ReservedCPUsOnly"}

CPUs by number take precedence over an amount of cpu. Batch resources are not changed: the slo-controller has subtracted
the reservation already.

Source: spec/scheduler-workloads.md 1.13; upstream pkg/util/node.go, pkg/util/transformer/node_transformer.go.
"""

from contextlib import suppress

import msgspec
from msgspec.structs import replace

from shared.domain.cpu_set import BadCpuList, parse_cpus
from shared.kube.json_text import read_json
from shared.kube.node import Node
from shared.kube.quantity import NANO, BadQuantity, nanos
from shared.kube.quantity_text import notation_of, quantity_text
from shared.type_error_words import field_fault
from shared.unknown_fields import unknown_fields

ANNOTATION = "node.koordinator.sh/reservation"

_OF_ALLOCATABLE, _CPUS_ONLY = ("", "Default"), "ReservedCPUsOnly"

_UNTOUCHED = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


class _Reservation(msgspec.Struct, frozen=True, rename="camel"):
    resources: dict[str, str] | None = None
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")
    apply_policy: str = ""


def less_reserved(node: Node) -> Node:
    """Returns the node with its allocatable reduced; unchanged when nothing is reserved or the annotation cannot be
    read.
    """
    text = (node.metadata.annotations or {}).get(ANNOTATION)
    if not text:
        return node
    try:
        reservation, reserved = _read(text)
    except (msgspec.MsgspecError, BadQuantity):
        return node
    if reservation.apply_policy not in _OF_ALLOCATABLE:
        return node
    if reservation.reserved_cpus:
        with suppress(BadCpuList):  # the amount counts then
            reserved["cpu"] = len(parse_cpus(reservation.reserved_cpus)) * NANO
    before = node.status.allocatable or {}
    after = {
        name: _less(size, reserved[name]) if name in reserved and name not in _UNTOUCHED else size
        for name, size in before.items()
    }
    return node if after == before else replace(node, status=replace(node.status, allocatable=after))


def reservation_fault(text: str) -> str:
    """Returns why the annotation of a node, or a part of it, is ignored; empty where it is not."""
    if not text:
        return ""
    try:
        reservation, _ = _read(text)
    except (msgspec.MsgspecError, BadQuantity) as error:
        return f"it cannot be read, and nothing is reserved: {field_fault(error)}"
    if reservation.apply_policy not in (*_OF_ALLOCATABLE, _CPUS_ONLY):
        known = f"{_OF_ALLOCATABLE[-1]} and {_CPUS_ONLY}"
        return f"applyPolicy is {reservation.apply_policy!r}, and allocatable is not reduced; policies are {known}"
    try:
        parse_cpus(reservation.reserved_cpus)
    except BadCpuList as error:
        return f"reservedCPUs cannot be read, and the amount of cpu counts: {error}"
    field = next(unknown_fields(_Reservation, msgspec.json.decode(text)), None)
    return f"{field.path} has no effect{field.meant}" if field else ""


def _read(text: str) -> tuple[_Reservation, dict[str, int]]:
    """Reads the annotation, and what it reserves by amount, in nanos."""
    reservation = read_json(text, _Reservation)
    return reservation, {name: nanos(size) for name, size in (reservation.resources or {}).items()}


def _less(size: str, reserved_nanos: int) -> str:
    try:
        return quantity_text(max(0, nanos(size) - reserved_nanos), notation_of(size))
    except BadQuantity:
        return size
