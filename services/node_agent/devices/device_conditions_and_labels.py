"""Conditions of devices, values of labels, and the numbers that are believed."""

import re

from shared.agents.device_inventory import DeviceCondition

MAX_MINOR = 1023
"""The highest minor that is believed: no driver numbers so many cards of one node."""
MAX_MESSAGE = 512
_HEALTHY = "Healthy"


def unhealthy(reason: str, message: str) -> tuple[DeviceCondition, ...]:
    """Returns the conditions of a device that must not be allocated.

    Args:
        reason: one word or several; as Kubernetes requires, they become one: `chip error` -> `ChipError`.
        message: a sentence.
    """
    return (DeviceCondition(_HEALTHY, "False", one_word(reason), message[:MAX_MESSAGE]),)


def healthy() -> tuple[DeviceCondition, ...]:
    """Returns the conditions of a device whose source reports that it is healthy."""
    return (DeviceCondition(_HEALTHY, "True", "DeviceHealthy", "device is healthy"),)


def one_word(text: str) -> str:
    """Returns a text as the reason of a condition; `Unknown` without a letter."""
    words = [word for word in re.split(r"[^A-Za-z0-9_]+", text) if word]
    joined = "".join(word if len(words) == 1 else word[0].upper() + word[1:] for word in words)
    return joined[:128] if joined[:1].isalpha() and joined.isascii() else "Unknown"


def label_value(text: str) -> str:
    """Returns a text as the value of a label: `A100 SXM4 80GB` -> `A100-SXM4-80GB`."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63].strip("-_.")
