"""NodeResourcesFitPlus and ScarceResourceAvoidance: scores."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.case_domain import Domain, Rule
from cli.parity.runners.scheduler.fit_plus import answer
from services.scheduler.plugins.node_resources_fit_plus.plugin import added_by
from shared.domain.pod_requests import held_requests, pod_requests, whole
from shared.kube.pod import Pod
from shared.kube.quantity import amounts

_WRAP = 1 << 64


def has_overhead(op: str, given: Mapping[str, Any]) -> bool:
    """Reports whether NodeResourcesFitPlus meets a pod with overhead, and has something to look at."""
    return op == "fitPlus" and bool(given["pod"]["spec"].get("overhead"))


def crashes(_: str, __: Mapping[str, Any]) -> dict[str, Any]:
    """Upstream's answer to a pod with overhead."""
    return {"panic": True}


def is_vast(op: str, given: Mapping[str, Any]) -> bool:
    """Reports whether an amount of a node is so large that a hundred times as much is beyond 64 bits."""
    allocatable = (amounts(node["status"].get("allocatable", {})) for node in given["nodes"])
    return op == "fitPlus" and any(size > (1 << 63) // 100 for node in allocatable for size in node.values())


def wrapped(_: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Upstream's answer where 64 bits are too few: what is left of the product after it has wrapped around."""
    pod = msgspec.convert(given["pod"], Pod)
    request = whole(pod_requests(pod))
    preferences = {name: p for name, p in given["args"]["resources"].items() if request.get(name, 0) > 0}
    scores = {}
    for node in given["nodes"]:
        name = node["metadata"]["name"]
        there = [p for p in msgspec.convert(given.get("pods", []), list[Pod]) if p.spec.node_name == name]
        capacity = amounts(node["status"].get("allocatable", {}))
        total = 0
        for resource, preference in preferences.items():
            with_defaults = resource in ("cpu", "memory")
            taken = sum(whole((held_requests if with_defaults else pod_requests)(p)).get(resource, 0) for p in there)
            part = _part(preference["type"], taken + added_by(pod, resource), capacity.get(resource, 0))
            total += part * preference["weight"]
        weights = sum(preference["weight"] for preference in preferences.values())
        scores[name] = _quotient(total, weights) if weights else 100
    return {"scores": scores}


def _part(strategy: str, requested: int, capacity: int) -> int:
    if capacity == 0 or (strategy == "LeastAllocated" and requested > capacity):
        return 0
    if strategy == "LeastAllocated":
        return _quotient(_signed((capacity - requested) * 100), capacity)
    return _quotient(_signed(min(requested, capacity) * 100), capacity) if strategy == "MostAllocated" else 0


def _signed(number: int) -> int:
    return (number + _WRAP // 2) % _WRAP - _WRAP // 2


def _quotient(number: int, divisor: int) -> int:
    """Division toward zero."""
    return number // divisor if number >= 0 else -(-number // divisor)


DOMAIN = Domain(
    answer,
    (
        Rule("A pod with overhead is scored", has_overhead, crashes),
        Rule("A vast amount does not wrap around", is_vast, wrapped),
    ),
    remarks=frozenset({"mayOverflow"}),
)
