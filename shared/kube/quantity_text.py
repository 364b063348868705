"""Formatting of amounts as Kubernetes quantities: `8Gi`, `500m`, `14000000065`.

A quantity keeps its notation (binary, decimal, with an exponent), so that an amount derived from `8Gi` is written
`4Gi`.

Source: k8s.io/apimachinery/pkg/api/resource, Quantity.CanonicalizeBytes.
"""

from collections.abc import Iterable, Mapping
from enum import Enum

from shared.kube.pod import Pod, Quantities
from shared.kube.quantity import NANO, bytes_text, milli_text, nanos


class Notation(Enum):
    """Notation of a quantity."""

    DECIMAL = "500m, 2, 3G"
    BINARY = "8Gi"
    EXPONENT = "1e3"


_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

_BYTES = ("memory", "ephemeral-storage", "hugepages-")
# By full name: other vendors count theirs in Mi or in parts of a card.
_GPU_MEMORY = ("koordinator.sh/gpu-memory", "kubernetes.io/gpu-memory")

Noted = tuple[int, Notation]


def notation_of(text: str) -> Notation:
    """Returns the notation of a quantity."""
    if text.endswith("i"):
        return Notation.BINARY
    digits = text.rstrip("0123456789+-")
    return Notation.EXPONENT if digits and digits[-1] in "eE" and digits != text else Notation.DECIMAL


def quantity_text(amount_nanos: int, notation: Notation) -> str:
    """Formats an amount in nanos (10^-9 of the unit), as short as possible without a loss.

    Binary notation is kept for whole amounts from 1024 on.
    """
    if amount_nanos == 0:
        return "0"
    whole, rest = divmod(amount_nanos, NANO)
    if notation is Notation.BINARY and rest == 0 and abs(whole) >= 1024:
        power = 0
        while whole % 1024 == 0 and power < len(_BINARY) - 1:
            whole //= 1024
            power += 1
        return f"{whole}{_BINARY[power]}"
    digits, exponent = amount_nanos, -9
    while digits % 1000 == 0 and exponent < 18:
        digits //= 1000
        exponent += 3
    if notation is Notation.EXPONENT:
        return f"{digits}e{exponent}" if exponent else str(digits)
    return f"{digits}{_DECIMAL[exponent]}"


def amount_text(resource: str, size: int) -> str:
    """Formats an amount in this system's units (cpu in milli-cores, everything else in whole units) as the API does."""
    if resource == "cpu":
        return milli_text(size)
    return bytes_text(size) if resource == "memory" else quantity_text(size * NANO, Notation.DECIMAL)


def is_in_bytes(resource: str) -> bool:
    """Reports whether a resource is counted in bytes."""
    name = resource.rpartition("/")[2].removeprefix("batch-").removeprefix("mid-")
    return name.startswith(_BYTES) or resource in _GPU_MEMORY


def is_in_milli_cores(resource: str) -> bool:
    """Reports whether a resource other than cpu is counted in milli-cores: batch-cpu and mid-cpu."""
    return resource.rpartition("/")[2] in ("batch-cpu", "mid-cpu")


def exact_text(resource: str, size: int) -> str:
    """Formats an amount for people, without rounding.

    Bytes of every resource are in the largest unit of which there is a whole number; batch-cpu and mid-cpu are plain
    numbers, as in manifests: `1k` or `1` would read as cores. Everything else is as of `amount_text`.
    """
    if is_in_milli_cores(resource):
        return str(size)
    return bytes_text(size) if is_in_bytes(resource) else amount_text(resource, size)


def request_notations(pod: Pod) -> dict[str, Notation]:
    """Returns the notations of a pod's requests: of a sum's first part that is not zero, or of a maximum's larger part."""
    total: dict[str, Noted] = {}
    sidecars: dict[str, Noted] = {}
    peak: dict[str, Noted] = {}
    for container in pod.spec.containers:
        _add(total, _read(container.resources.requests if container.resources else None))
    for container in pod.spec.init_containers:
        own = _read(container.resources.requests if container.resources else None)
        if container.restart_policy == "Always":
            _add(total, own)
            _add(sidecars, own)
            _raise(peak, sidecars.items())
        else:
            _add(own, sidecars)
            _raise(peak, own.items())
    _raise(total, peak.items())
    if pod.spec.resources is not None:
        total.update(_read(pod.spec.resources.requests))
    _add(total, _read(pod.spec.overhead))
    return {name: notation for name, (_, notation) in total.items()}


def _read(quantities: Quantities | None) -> dict[str, Noted]:
    return {name: (nanos(text), notation_of(text)) for name, text in (quantities or {}).items()}


def _add(total: dict[str, Noted], more: Mapping[str, Noted]) -> None:
    for name, (size, notation) in more.items():
        before = total.get(name)
        total[name] = (size, notation) if before is None else (before[0] + size, before[1] if before[0] else notation)


def _raise(total: dict[str, Noted], others: Iterable[tuple[str, Noted]]) -> None:
    for name, noted in others:
        if name not in total or noted[0] > total[name][0]:
            total[name] = noted
