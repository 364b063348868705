"""Upstream's answers to the `quota-runtime` cases. Source: shared vectors' README, spec/quota.md 3."""

from collections.abc import Mapping
from typing import Any

from cli.parity.runners.quota.runtime_cases import amounts_of, changes
from cli.parity.upstream.quota.fair_share import Child, scaled_minima, share
from cli.parity.upstream.quota.quirks import Quirks
from cli.parity.upstream.quota.quota_info import QuotaInfo
from cli.parity.upstream.quota.quota_plugin import QuotaPlugin
from cli.parity.upstream.quota.quota_tree import QuotaTree
from shared.domain.amounts import nonzero
from shared.kube.elastic_quota import RESERVED, ROOT
from shared.kube.quantity import amounts


def predicted(op: str, given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Returns upstream's answer to one case's input with some of its quirks."""
    match op:
        case "redistribute":
            return _redistribute(given, quirks)
        case "scaleMin":
            return _scale(given, quirks)
    return _history(given, quirks)


def _redistribute(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    total = amounts(given["total"])
    runtime: dict[str, dict[str, int]] = {child["name"]: {} for child in given["children"]}
    for resource in given["resources"]:
        children = [_child(child, resource) for child in given["children"]]
        for name, size in share(total.get(resource, 0), children, quirks).items():
            runtime[name][resource] = size
    return {"runtime": runtime}


def _child(child: Mapping[str, Any], resource: str) -> Child:
    def size(field: str) -> int | None:
        return amounts(child[field]).get(resource)

    request, limit = size("request") or 0, size("max")
    demand = request if limit is None else min(request, limit)
    floor = max(size("floor") or 0, size("guaranteed") or 0)
    return Child(child["name"], floor, demand, size("sharedWeight") or 0, child["allowLent"])


def _scale(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    names = [child["name"] for child in given["children"]]
    if not given["scaleEnabled"]:
        return {"quotas": {name: {"applies": False} for name in names}}
    scaled = scaled_minima(amounts(given["total"]), [amounts(child["min"]) for child in given["children"]], quirks)
    return {"quotas": {name: {"applies": True, "min": each} for name, each in zip(names, scaled, strict=True)}}


def _history(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    scheduler = QuotaPlugin(given, quirks)
    before: dict[str, Any] = {}
    steps = []
    for step in given["steps"]:
        for event in step["events"]:
            scheduler.take(event)
        scheduler.settle()
        after = {name: _tree(scheduler, name, tree) for name, tree in scheduler.trees.items()}
        steps.append({"trees": changes(before, after)})
        before = after
    return {"steps": steps}


def _tree(scheduler: QuotaPlugin, name: str, tree: QuotaTree) -> dict[str, Any]:
    quotas = {info.name: _account(scheduler, name, info) for info in tree.quotas.values()}
    return {"total": tree.total, "capacity": tree.capacity, "quotas": quotas}


def _account(scheduler: QuotaPlugin, tree: str, info: QuotaInfo) -> dict[str, Any]:
    declared = info.declared
    return {
        "parent": declared.parent,
        "isParent": declared.is_parent,
        "allowLent": info.lends,
        "runtime": shown(info, info.runtime),
        "autoScaleMin": {} if info.name in (ROOT, *RESERVED) else nonzero(info.scaled_min),
        "sharedWeight": declared.weight,
        **amounts_of(info),
        "pods": {key: booked.assigned for key, booked in scheduler.pods.of(tree, info.name).items()},
    }


def shown(info: QuotaInfo, limit: Mapping[str, int]) -> dict[str, int]:
    """Returns a limit without the zeros of resources that the quota itself does not name."""
    return {name: size for name, size in limit.items() if size or name in info.declared.max}
