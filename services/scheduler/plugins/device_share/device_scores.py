"""Scores of devices and of nodes by their devices: least or most allocated.

Source: spec/scheduler-workloads.md 3.6; upstream pkg/scheduler/plugins/deviceshare/{scoring,device_allocator}.go.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.scheduler.plugins.device_share.device_usage import DeviceView
from services.scheduler.plugins.device_share.devices_of_node import Amounts

LEAST, MOST = "LeastAllocated", "MostAllocated"


class ScoringStrategy(NamedTuple):
    """The strategy, and the resources that count with their weights."""

    most: bool
    weights: tuple[tuple[str, int], ...]


def device_score(strategy: ScoringStrategy, request: Amounts, total: Amounts, free: Amounts) -> int:
    """The score of devices with these total and free amounts, 0..100.

    Of each resource with a total: the share that is used with the request, or that is left.
    """
    score = weights = 0
    for name, weight in strategy.weights:
        capacity = total.get(name, 0)
        if not capacity:
            continue
        left = free.get(name, 0)
        requested = capacity - left + request.get(name, 0) if capacity >= left else capacity
        if strategy.most:
            score += weight * (min(requested, capacity) * 100 // capacity)
        elif requested <= capacity:
            score += weight * ((capacity - requested) * 100 // capacity)
        weights += weight
    return score // weights if weights else 0


def node_score(strategy: ScoringStrategy, view: DeviceView, each: Mapping[str, Amounts]) -> int:
    """The score of a node: the sum over the requested types.

    Args:
        each: type -> amounts that are requested of one device.
    """
    return sum(
        device_score(strategy, request, _sum(view.total[type_].values()), _sum(view.free[type_].values()))
        for type_, request in each.items()
        if type_ in view.total
    )


def _sum(amounts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in amounts:
        for name, size in each.items():
            total[name] = total.get(name, 0) + size
    return total
