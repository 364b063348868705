"""Texts of reasons in upstream's words, where ours are others."""

import re

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.registry import text

_UNREADABLE = re.compile(r"annotation (\S+) cannot be read: (.*); correct or remove it")
_CUT_SHORT = "it is no JSON: its end is missing"
_NO_VALUE = re.compile(r"it is no JSON: no value begins with ('.'|\".\"), character \d+", re.DOTALL)
_OPERATOR = re.compile(r"(\w+)\.(selector|vfSelector): '(.*)' is no operator; .*")
_SELECTORS = {"selector": "Selector", "vfSelector": "VFSelector"}
_DEVICE_LABELS = {
    "scheduling.koordinator.sh/device-allocate-hint": "DeviceAllocateHint",
    "scheduling.koordinator.sh/device-joint-allocate": "DeviceJointAllocate",
    "scheduling.koordinator.sh/gpu-partition-spec": "GPUPartitionSpec",
}
"""Annotation -> the name that DeviceShare's texts have for it."""
_ARGUED = "scheduling.koordinator.sh/reservation-affinity"
"""Here the other text is a difference that docs/compat.md argues for."""


def upstream_text(reason: Reason) -> str:
    """Returns the text of a reason; ours names an annotation that cannot be read, upstream's the fault of syntax."""
    ours = text(*reason)
    found = _UNREADABLE.fullmatch(ours)
    if found is None or found[1] == _ARGUED:
        return ours
    name, fault = found.groups()
    if operator := _OPERATOR.fullmatch(fault):
        where = f"invalid {_SELECTORS[operator[2]]} of DeviceHint, deviceType: {operator[1]}"
        return f'{where}, err: "{operator[3]}" is not a valid label selector operator'
    fault = "unexpected end of JSON input" if fault == _CUT_SHORT else fault
    fault = _NO_VALUE.sub(r"invalid character \1 looking for beginning of value", fault)
    return f"invalid {_DEVICE_LABELS[name]} annotation, err: {fault}" if name in _DEVICE_LABELS else fault
