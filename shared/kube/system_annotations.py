"""Annotations of pods that only this system writes: the allocations that the scheduler decided.

A tenant can write them too where no webhook answers, and would give itself CPUs or devices of others. Therefore the
webhook refuses them, and readers believe what `PodPlaced` carried (`PodBound` repeats it in `cluster`), whatever the
object says.
"""

from collections.abc import Mapping

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
"""CPUs and NUMA zones of a pod on its node."""

DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
RESERVATION_ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"

SYSTEM_ANNOTATIONS = (RESOURCE_STATUS, DEVICE_ALLOCATED, RESERVATION_ALLOCATED)
"""All of them, of pods."""


def allocations_in(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the allocations among annotations."""
    if not annotations:
        return {}
    return {name: annotations[name] for name in SYSTEM_ANNOTATIONS if name in annotations}


def with_allocations(annotations: Mapping[str, str] | None, allocations: Mapping[str, str]) -> dict[str, str] | None:
    """Returns annotations whose allocations are replaced by the believed ones; None for no annotation."""
    others = {name: text for name, text in (annotations or {}).items() if name not in SYSTEM_ANNOTATIONS}
    return {**others, **allocations} or None
