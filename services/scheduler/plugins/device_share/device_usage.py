"""The use of a node's devices by its pods, and the part of it that a pod sees.

Source: spec/scheduler-workloads.md 3.1, 3.5, 3.8; upstream pkg/scheduler/plugins/deviceshare/device_cache.go.
"""

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from services.scheduler.plugins.device_share.devices_of_node import Amounts, NodeDevices, OfferedDevice
from services.scheduler.plugins.device_share.pod_device_requests import DeviceRequests
from shared.domain.label_selectors import Selector, selects

ByMinor = Mapping[int, Amounts]
ByType = Mapping[str, ByMinor]
"""Type -> minor -> resource -> amount."""


class AllocatedDevice(NamedTuple):
    """A device, or a part of one, that a pod has.

    Attributes:
        functions: (bus id, minor) of its virtual functions.
        template: the template of the shared GPU; empty without one.
    """

    type: str
    minor: int
    amounts: tuple[tuple[str, int], ...]
    functions: tuple[tuple[str, int], ...] = ()
    template: str = ""


Allocation = tuple[AllocatedDevice, ...]


class DeviceUsage:
    """The sum of allocations.

    Attributes:
        used: type -> minor -> amounts.
        functions: type -> minor -> bus ids of the virtual functions in use.
    """

    def __init__(self, allocations: Iterable[Allocation] = ()) -> None:
        self.used: dict[str, dict[int, dict[str, int]]] = {}
        self.functions: dict[str, dict[int, set[str]]] = {}
        for allocation in allocations:
            for device in allocation:
                add(self.used.setdefault(device.type, {}).setdefault(device.minor, {}), device.amounts)
                if device.functions:
                    there = self.functions.setdefault(device.type, {}).setdefault(device.minor, set())
                    there.update(bus for bus, _ in device.functions)

    @cached_property
    def key(self) -> Hashable:
        """A key that is equal for equal use."""
        return (
            tuple(
                (type_, tuple((minor, tuple(sorted(amounts.items()))) for minor, amounts in sorted(minors.items())))
                for type_, minors in sorted(self.used.items())
            ),
            tuple(
                (type_, tuple((minor, tuple(sorted(buses))) for minor, buses in sorted(minors.items())))
                for type_, minors in sorted(self.functions.items())
            ),
        )


def add(total: dict[str, int], more: Iterable[tuple[str, int]], sign: int = 1) -> None:
    """Adds amounts in place."""
    for name, size in more:
        total[name] = total.get(name, 0) + sign * size


def less(one: Amounts, other: Amounts) -> dict[str, int]:
    """Subtracts amounts; none falls below 0. Names of either are in the result, as upstream has it."""
    left = {name: size - taken if size > (taken := other.get(name, 0)) else 0 for name, size in one.items()}
    if not other.keys() <= one.keys():
        left.update((name, max(0, -size)) for name, size in other.items() if name not in one)
    return left


def fits(requested: Amounts, free: Amounts) -> bool:
    """Compares amounts that both have, as upstream has it: a resource without a free amount is not compared."""
    for name, size in requested.items():  # noqa: SIM110
        # A loop, since the filter calls this for each device of each new state.
        if size > free.get(name, size):
            return False
    return True


def is_zero(amounts: Amounts) -> bool:
    """Returns True where nothing is left of any resource."""
    return not any(amounts.values())


class DeviceView(NamedTuple):
    """The devices that a pod may get, of the types with a free amount.

    Attributes:
        devices: of the node.
        total, free, used: type -> minor -> amounts, of the same minors.
        in_use: type -> minors that pods use, whether they are in the view or not.
        functions: as `DeviceUsage.functions`.
    """

    devices: NodeDevices
    total: ByType
    free: ByType
    used: ByType
    in_use: Mapping[str, frozenset[int]]
    functions: Mapping[str, Mapping[int, set[str]]]


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Lifted(NamedTuple):
    """Amounts that count as free for a pod, and those that it must not exceed.

    Attributes:
        freed: type -> minor -> amounts.
        required: the only minors, with what the pod may use of each; types that are absent are not limited.
        preferred: minors that come first.
    """

    freed: ByType = _NOTHING
    required: ByType = _NOTHING
    preferred: Mapping[str, frozenset[int]] = _NOTHING


NOTHING_LIFTED = Lifted()


class TypeView(NamedTuple):
    """The devices of one type that a pod may get; the fields as in `DeviceView`. Without any, `total` is empty."""

    total: ByMinor
    free: ByMinor
    used: ByMinor
    in_use: frozenset[int]


class DevicesInUse:
    """The devices of a node with their use. What pods without wishes about devices may get is computed once."""

    __slots__ = ("_plain", "_views", "devices", "usage")

    def __init__(self, devices: NodeDevices, usage: DeviceUsage) -> None:
        self.devices = devices
        self.usage = usage
        self._plain: dict[str, TypeView] = {}
        self._views: dict[tuple[str, ...], DeviceView] = {}

    def view(
        self, requests: DeviceRequests, numas: frozenset[int] | None = None, lifted: Lifted = NOTHING_LIFTED
    ) -> DeviceView:
        """Returns the devices that a pod may get.

        Args:
            numas: the NUMA nodes that it is bound to; None for all.
        """
        if requests.wishes or numas is not None or lifted is not NOTHING_LIFTED:
            return self._view(requests, numas, lifted)
        types = tuple(requests.of_type)
        view = self._views.get(types)
        if view is None:
            view = self._views[types] = self._view(requests, None, NOTHING_LIFTED)
        return view

    def _view(self, requests: DeviceRequests, numas: frozenset[int] | None, lifted: Lifted) -> DeviceView:
        views = {
            type_: self._of_type(type_, requests.wish(type_).selector, numas, lifted) for type_ in requests.of_type
        }
        offered = {type_: view for type_, view in views.items() if view.total}
        return DeviceView(
            self.devices,
            {type_: view.total for type_, view in offered.items()},
            {type_: view.free for type_, view in offered.items()},
            {type_: view.used for type_, view in offered.items()},
            {type_: view.in_use for type_, view in views.items()},
            self.usage.functions,
        )

    def _of_type(self, type_: str, selector: Selector | None, numas: frozenset[int] | None, lifted: Lifted) -> TypeView:
        if selector is not None or numas is not None or lifted is not NOTHING_LIFTED:
            return self._computed(type_, selector, numas, lifted)
        view = self._plain.get(type_)
        if view is None:
            view = self._plain[type_] = self._computed(type_, None, None, NOTHING_LIFTED)
        return view

    def _computed(
        self, type_: str, selector: Selector | None, numas: frozenset[int] | None, lifted: Lifted
    ) -> TypeView:
        offered = self.devices.of_type.get(type_, {})
        whole = _free(offered, self.usage.used.get(type_, {}), lifted.freed.get(type_, {}))
        required = lifted.required.get(type_)
        left = whole if required is None else _within(whole, required)
        taken = {
            # An untouched device is free as a whole.
            minor: {} if (free_ := left.get(minor, whole[minor])) is device.total else less(device.total, free_)
            for minor, device in offered.items()
        }
        in_use = frozenset(minor for minor, amounts in taken.items() if not is_zero(amounts))
        if all(map(is_zero, left.values())):
            return TypeView({}, {}, {}, in_use)
        minors = [
            minor
            for minor, device in offered.items()
            if minor in left
            and (numas is None or (device.numa is not None and (device.numa < 0 or device.numa in numas)))
            and (selector is None or selects(selector, dict(device.labels)))
        ]
        return TypeView(
            {minor: offered[minor].total for minor in minors},
            {minor: left[minor] if required is None else less(offered[minor].total, taken[minor]) for minor in minors},
            {minor: taken[minor] for minor in minors},
            in_use,
        )


def _free(offered: Mapping[int, OfferedDevice], used: ByMinor, freed: ByMinor) -> dict[int, Amounts]:
    left: dict[int, Amounts] = {}
    for minor, device in offered.items():
        taken = used.get(minor)
        if taken is None:
            left[minor] = device.total
        else:
            left[minor] = less(device.total, less(taken, freed[minor]) if minor in freed else taken)
    return left


def _within(free: dict[int, Amounts], required: ByMinor) -> dict[int, Amounts]:
    """Caps free amounts by those that the pod may use. As upstream has it, names of one alone are not compared."""
    return {
        minor: {name: min(size, limits[name]) for name, size in free[minor].items() if name in limits}
        for minor, limits in required.items()
        if minor in free
    }
