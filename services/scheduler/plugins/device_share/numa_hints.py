"""NUMA hints of a node's devices: the sets of NUMA nodes whose devices are enough for a pod.

Source: spec/scheduler-workloads.md 3.7; upstream pkg/scheduler/plugins/deviceshare/topology_hint.go.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.device_share.choose_devices import DesiredDevices, desired_devices
from services.scheduler.plugins.device_share.device_usage import NOTHING_LIFTED, Allocation, Lifted
from services.scheduler.plugins.device_share.filter_score_reserve_on_one_node import DeviceAdmission
from services.scheduler.plugins.helper.numa_hint_provider_interface import ZoneHint
from services.scheduler.plugins.helper.rejections import Rejection
from shared.kube.device import GPU

MAX_MASKS = 1024
"""Number of sets of NUMA nodes that are considered."""
FULL_SCORE = 500


def device_hints(
    admission: DeviceAdmission, lifted: Lifted = NOTHING_LIFTED
) -> Mapping[str, Sequence[ZoneHint]] | Rejection:
    """Returns type -> hints, the same for each type; none where the place of no device is known.

    Args:
        lifted: devices of a Reservation that the pod uses.
    """
    devices, requests = admission.node.devices, admission.requests
    numas = devices.numas
    if not numas:
        return {}
    desired = desired_devices(devices, requests)
    if isinstance(desired, Rejection):
        return desired
    whole = _within(admission, desired, frozenset(numas), lifted)
    if isinstance(whole, Rejection):
        return whole
    feasible: list[tuple[tuple[int, ...], int]] = []
    for mask in _masks(numas):
        found = _within(admission, desired, frozenset(mask), lifted)
        if not isinstance(found, Rejection):
            feasible.append((mask, FULL_SCORE if _gpus(found) == _gpus(whole) else 0))
    narrowest = min(len(mask) for mask, _ in feasible)
    hints = tuple(ZoneHint(mask, len(mask) == narrowest, score) for mask, score in feasible)
    return dict.fromkeys(desired, hints)


def _within(
    admission: DeviceAdmission, desired: Mapping[str, DesiredDevices], numas: frozenset[int], lifted: Lifted
) -> Allocation | Rejection:
    """Chooses devices below some NUMA nodes, where there are enough. Types without a device there are not counted."""
    offered = admission.node.devices.of_type
    for type_, each in desired.items():
        count = sum(device.numa in numas for device in offered[type_].values())
        if 0 < count < each.number:
            return Rejection((Reason("InsufficientNumaDevices"),), unresolvable=True)
    return admission.choose(numas, lifted)


def _gpus(allocation: Allocation) -> frozenset[int]:
    return frozenset(device.minor for device in allocation if device.type == GPU)


def _masks(numas: Sequence[int]) -> Iterator[tuple[int, ...]]:
    made = 0
    for size in range(1, len(numas) + 1):
        for mask in combinations(numas, size):
            made += 1
            if made > MAX_MASKS:
                return
            yield mask
