"""Chooses devices of a node for a pod: counts, joint allocation, and the choice within one type.

Source: spec/scheduler-workloads.md 3.2, 3.5; upstream
pkg/scheduler/plugins/deviceshare/{device_allocator,allocator_gpu,utils}.go.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.device_share.choose_gpus import GpuChoice, choose_gpus
from services.scheduler.plugins.device_share.device_scores import ScoringStrategy, device_score
from services.scheduler.plugins.device_share.device_usage import (
    AllocatedDevice,
    Allocation,
    DeviceView,
    fits,
)
from services.scheduler.plugins.device_share.devices_of_node import Amounts, NodeDevices, OfferedDevice
from services.scheduler.plugins.device_share.pod_device_requests import (
    APPLY_FOR_ALL,
    DEVICE_LEVEL,
    REQUESTS_AS_COUNT,
    DeviceRequests,
)
from services.scheduler.plugins.helper.rejections import Rejection
from shared.domain.device_requests import MEMORY, RATIO
from shared.domain.label_selectors import selects
from shared.kube.device import GPU


class DesiredDevices(NamedTuple):
    """The number of devices of a type, and what is requested of each."""

    number: int
    each: Amounts


class Choice(NamedTuple):
    """The terms of an allocation.

    Attributes:
        strategy: scores devices; None: the lowest minors come first.
        preferred: type -> minors that come first, of a Reservation.
        final: the allocation is made; else it is only tried.
        templates: names of the templates of shared GPUs that equal the request on this node; None where the request
            needs none.
    """

    strategy: ScoringStrategy | None = None
    preferred: Mapping[str, frozenset[int]] = MappingProxyType({})
    final: bool = False
    templates: Sequence[str] | None = None


def desired_devices(
    devices: NodeDevices, requests: DeviceRequests, *, final: bool = False
) -> dict[str, DesiredDevices] | Rejection:
    """Returns type -> number of devices and what is requested of each, whatever is free.

    Args:
        final: the allocation is made; else secondary devices are left out where they are well planned.
    """
    desired: dict[str, DesiredDevices] = {}
    has_whole_gpus = requests.gpu is not None and not requests.gpu.shared
    defers = not final and devices.well_planned and has_whole_gpus and bool(requests.joint)
    for type_, requested in requests.of_type.items():
        if defers and type_ != requests.joint[0]:
            continue
        there = devices.of_type.get(type_)
        if not there:
            return _lacking(type_, unresolvable=True)
        if type_ == GPU:
            assert requests.gpu is not None, "requests of GPUs have been read"
            desired[type_] = DesiredDevices(requests.gpu.number, requests.gpu.each)
            continue
        ((name, size),) = requested.items()
        wish = requests.wish(type_)
        if size > 100 and size % 100 == 0:
            desired[type_] = DesiredDevices(size // 100, {name: 100})
        elif wish.strategy == APPLY_FOR_ALL:
            count = sum(wish.selector is None or selects(wish.selector, dict(each.labels)) for each in there.values())
            if not count:
                return _lacking(type_, unresolvable=True)
            desired[type_] = DesiredDevices(count, requested)
        elif wish.strategy == REQUESTS_AS_COUNT:
            desired[type_] = DesiredDevices(size, {name: 100 if wish.exclusive == DEVICE_LEVEL else 1})
        else:
            desired[type_] = DesiredDevices(1, requested)
    return desired


def choose_devices(view: DeviceView, requests: DeviceRequests, choice: Choice) -> Allocation | Rejection:
    """Chooses the devices of a pod, in the order of choice."""
    desired = desired_devices(view.devices, requests, final=choice.final)
    if isinstance(desired, Rejection):
        return desired
    for type_ in desired:
        if requests.wish(type_).functions is not None and not any(
            device.groups for device in view.devices.of_type[type_].values()
        ):
            return Rejection((Reason("InsufficientVirtualFunctions", type_),), unresolvable=True)
    chosen: dict[str, list[AllocatedDevice]] = {}
    if len(desired) > 1 and len(requests.joint) > 1:
        rejection = _jointly(view, requests, choice, desired, chosen)
        if rejection is not None:
            return rejection
    for type_, each in desired.items():
        if type_ not in chosen:
            found = _of_type(view, requests, choice, type_, each, ())
            if isinstance(found, Rejection):
                return found
            chosen[type_] = found
    return tuple(device for type_ in desired for device in chosen.get(type_, ()))


def _jointly(
    view: DeviceView,
    requests: DeviceRequests,
    choice: Choice,
    desired: Mapping[str, DesiredDevices],
    chosen: dict[str, list[AllocatedDevice]],
) -> Rejection | None:
    primary = requests.joint[0]
    found = _of_type(view, requests, choice, primary, desired[primary], ())
    if isinstance(found, Rejection):
        return found
    chosen[primary] = found
    offered = view.devices.of_type
    switches = tuple(sorted({offered[primary][device.minor].pcie for device in found}))
    for type_, each in desired.items():
        if type_ == primary:
            continue
        count = max(each.number, len(switches)) if requests.same_pcie else each.number
        beside = _of_type(view, requests, choice, type_, DesiredDevices(count, each.each), switches)
        if isinstance(beside, Rejection):
            return beside
        chosen[type_] = beside
        if requests.same_pcie and {offered[type_][device.minor].pcie for device in beside} != set(switches):
            return Rejection((Reason("JointAllocationViolated"),))
    return None


def _of_type(
    view: DeviceView,
    requests: DeviceRequests,
    choice: Choice,
    type_: str,
    desired: DesiredDevices,
    switches: Sequence[str],
) -> list[AllocatedDevice] | Rejection:
    template = ""
    if type_ == GPU:
        assert requests.gpu is not None, "requests of GPUs have been read"
        if choice.templates is not None and not choice.templates:
            return Rejection((Reason("NoGpuTemplate"),), unresolvable=True)
        if choice.templates is not None and len(choice.templates) == 1:
            template = choice.templates[0]
        score = _shared_score(view, choice.strategy, desired.each)
        gpus = choose_gpus(view, requests, GpuChoice(score, has_template=bool(template)))
        if isinstance(gpus, Rejection):
            return gpus
        if gpus is not None:
            return [_allocated(view, GPU, minor, desired.each, (), template) for minor in gpus]
        switches = ()
    found = _one_by_one(view, requests, choice, type_, desired, switches)
    if isinstance(found, Rejection):
        return found
    return [_allocated(view, type_, minor, desired.each, functions, template) for minor, functions in found]


def _shared_score(view: DeviceView, strategy: ScoringStrategy | None, each: Amounts) -> Callable[[int], int]:
    """The score of a GPU for a part of it. As upstream has it, total and free amounts change places."""
    if strategy is None:
        return lambda _: 0
    total, free = view.total.get(GPU, {}), view.free.get(GPU, {})
    return lambda minor: device_score(strategy, each, free[minor], total[minor])


def _one_by_one(
    view: DeviceView,
    requests: DeviceRequests,
    choice: Choice,
    type_: str,
    desired: DesiredDevices,
    switches: Sequence[str],
) -> list[tuple[int, tuple[tuple[str, int], ...]]] | Rejection:
    """Takes devices in the order of preference."""
    want, most = max(desired.number, 1), max(desired.number, 1, len(switches))
    selector = requests.wish(type_).functions
    found: list[tuple[int, tuple[tuple[str, int], ...]]] = []
    for minor in _ordered(view, choice, type_, desired.each, switches):
        if not view.total[type_][minor] or not fits(desired.each, view.free[type_][minor]):
            continue
        functions: tuple[tuple[str, int], ...] = ()
        if selector is not None:
            in_use = view.functions.get(type_, {}).get(minor, ())
            unused = [
                function
                for group in view.devices.of_type[type_][minor].groups
                if selects(selector, dict(group.labels))
                for function in group.functions
                if function[0] not in in_use
            ]
            if not unused:
                continue
            functions = (min(unused),)
        found.append((minor, functions))
        if len(found) == most:
            break
    if len(found) < want:
        return _lacking(type_, unresolvable=False)
    return found


def _ordered(view: DeviceView, choice: Choice, type_: str, each: Amounts, switches: Sequence[str]) -> list[int]:
    """The devices in the order of preference: those of a Reservation, then one below each preferred switch in turn."""
    total, free, strategy = view.total.get(type_, {}), view.free.get(type_, {}), choice.strategy
    if strategy is None:
        scores, best = dict.fromkeys(total, 0), list(total)  # in the order of minors
    else:
        scores = {minor: device_score(strategy, each, total[minor], free[minor]) for minor in total}
        best = sorted(total, key=lambda minor: (-scores[minor], minor))
    if preferred := choice.preferred.get(type_):
        return [minor for minor in best if minor in preferred] + [minor for minor in best if minor not in preferred]
    if not switches:
        return best
    offered = view.devices.of_type[type_]
    turns = {minor: turn for below in _below(best, offered, switches).values() for turn, minor in enumerate(below)}
    first = sorted(turns, key=lambda minor: (turns[minor], -scores[minor], minor))
    return first + [minor for minor in best if minor not in turns]


def _below(
    minors: Sequence[int], offered: Mapping[int, OfferedDevice], switches: Collection[str]
) -> dict[str, list[int]]:
    below: dict[str, list[int]] = {}
    for minor in minors:
        pcie = offered[minor].pcie
        if pcie in switches:
            below.setdefault(pcie, []).append(minor)
    return below


def _allocated(
    view: DeviceView,
    type_: str,
    minor: int,
    each: Amounts,
    functions: tuple[tuple[str, int], ...],
    template: str,
) -> AllocatedDevice:
    amounts = dict(each)
    if type_ == GPU:
        size = view.total[GPU][minor].get(MEMORY, 0)
        if MEMORY not in amounts:
            amounts[MEMORY] = amounts.get(RATIO, 0) * size // 100
        elif RATIO not in amounts and size:
            # Upstream derives the ratio in binary floating point, and truncates it.
            amounts[RATIO] = int(float(amounts[MEMORY]) / float(size) * 100)
    return AllocatedDevice(type_, minor, tuple(sorted(amounts.items())), functions, template)


def _lacking(type_: str, *, unresolvable: bool) -> Rejection:
    return Rejection((Reason("InsufficientDevices", type_),), unresolvable)
