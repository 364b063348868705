"""Amounts of resources as people read them; programs get integers."""

from collections.abc import Mapping
from contextlib import suppress

from shared.kube.quantity import BadQuantity, amount, milli_text, nanos
from shared.kube.quantity_text import exact_text, is_in_bytes

UNLIMITED = (2**63 - 1) // 5
"""The max of the system and default groups, and more."""

_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def human_amount(resource: str, size: int | None) -> str:
    """Returns an amount: cpu in cores or thousandths, bytes in the largest unit with one decimal at most; batch-cpu and
    mid-cpu in milli-cores without a unit, as in manifests.

    `unlimited` for no limit.

    Args:
        size: cpu in milli-cores, memory in bytes, the rest in whole units; None for no limit.
    """
    if size is None or size >= UNLIMITED:
        return "unlimited"
    if resource == "cpu":
        return milli_text(size)
    return _bytes(size) if is_in_bytes(resource) else exact_text(resource, size)


def exact_amount(resource: str, size: int) -> str:
    """Returns an amount that is not rounded, bytes in the largest unit of which there is a whole number: for sums."""
    if size >= UNLIMITED:
        return "unlimited"
    return exact_text(resource, size)


def readable_amounts(quantities: Mapping[str, str] | None) -> dict[str, int]:
    """Returns resource -> amount, by name, in the units of `human_amount`; unreadable quantities are left out."""
    found = {}
    for name, text in sorted((quantities or {}).items()):
        with suppress(BadQuantity):
            found[name] = amount(name, nanos(text))
    return found


def human_amounts(sizes: Mapping[str, int], *, none: str = "nothing") -> str:
    """Returns a list of amounts: `cpu 1500m, memory 2Gi`."""
    return ", ".join(f"{name} {human_amount(name, size)}" for name, size in sorted(sizes.items())) or none


def _bytes(size: int) -> str:
    power, part = 0, float(abs(size))
    while part >= 1024 and power < len(_UNITS) - 1:
        part /= 1024
        power += 1
    text = f"{part:.1f}".removesuffix(".0")
    return f"{'-' if size < 0 else ''}{text}{_UNITS[power]}"
