"""The `quota-runtime` cases: the shares of one level, scaled minima, and whole trees over a history."""

from collections.abc import Mapping
from typing import Any

from cli.parity.runners.quota.recorded_ledger import RecordedLedger
from cli.parity.upstream.quota.quota_info import QuotaInfo as ModelAccount
from services.quota_ledger.runtime.fair_share import Child, scaled_minima, share
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import Amounts, nonzero
from shared.kube.elastic_quota import RESERVED, ROOT
from shared.kube.quantity import amounts


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer to one case's input, in the shape of the recorded output without its remarks."""
    match op:
        case "redistribute":
            return redistribute(given)
        case "scaleMin":
            return scale(given)
    return history(given)


def redistribute(given: Mapping[str, Any]) -> dict[str, Any]:
    """Shares the capacity of one level of a tree, in all its resources."""
    total = amounts(given["total"])
    parts = [
        {key: amounts(child[key]) for key in ("floor", "request", "max", "sharedWeight", "guaranteed")}
        for child in given["children"]
    ]
    runtime: dict[str, Amounts] = {child["name"]: {} for child in given["children"]}
    for resource in given["resources"]:
        children = []
        for child, part in zip(given["children"], parts, strict=True):
            floor = max(part["floor"].get(resource, 0), part["guaranteed"].get(resource, 0))
            request = part["request"].get(resource, 0)
            demand = min(request, part["max"].get(resource, request))
            children.append(
                Child(child["name"], floor, demand, part["sharedWeight"].get(resource, 0), child["allowLent"])
            )
        for child, got in zip(children, share(total.get(resource, 0), children), strict=True):
            runtime[child.name][resource] = got
    return {"runtime": runtime}


def scale(given: Mapping[str, Any]) -> dict[str, Any]:
    """Scales the minima of siblings to a capacity."""
    names = [child["name"] for child in given["children"]]
    if not given["scaleEnabled"]:
        return {"quotas": {name: {"applies": False} for name in names}}
    scaled = scaled_minima(amounts(given["total"]), [amounts(child["min"]) for child in given["children"]])
    return {"quotas": {name: {"applies": True, "min": each} for name, each in zip(names, scaled, strict=True)}}


def history(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what each step changed in the books of a ledger."""
    ledger = RecordedLedger(given)
    before: dict[str, Any] = {}
    steps = []
    for step in given["steps"]:
        for event in step["events"]:
            ledger.take(event)
        after = {name: _tree(ledger, name, tree) for name, tree in ledger.trees.items()}
        steps.append({"trees": changes(before, after)})
        before = after
    return {"steps": steps}


def _tree(ledger: RecordedLedger, name: str, tree: QuotaTree) -> dict[str, Any]:
    return {
        "total": tree.total,
        "capacity": tree.capacity,
        "quotas": {info.name: _account(ledger, name, info) for info in tree.quotas.values()},
    }


def _account(ledger: RecordedLedger, tree: str, info: QuotaInfo) -> dict[str, Any]:
    declared = info.declared
    is_group = info.name in RESERVED
    return {
        "parent": declared.parent,
        "isParent": declared.is_parent,
        "allowLent": info.lends,
        "runtime": {name: size for name, size in info.runtime.items() if size or name in declared.max},
        "autoScaleMin": {} if info.name == ROOT or is_group else nonzero(info.scaled_min),
        "sharedWeight": {} if is_group and info.name not in ledger.delivered else declared.weight,
        **amounts_of(info),
        "pods": {key: held.charged for key, held in ledger.pods_of(tree, info.name).items()},
    }


def amounts_of(info: QuotaInfo | ModelAccount) -> dict[str, Amounts]:
    """Returns what a quota has, requests and uses, in the record's shape."""
    return {
        "request": nonzero(info.request),
        "childRequest": {} if info.name == ROOT else nonzero(info.child_request),
        "used": nonzero(info.used),
        "nonPreemptibleRequest": nonzero(info.np_request),
        "nonPreemptibleUsed": nonzero(info.np_used),
        "selfRequest": nonzero(info.self_request),
        "selfUsed": nonzero(info.self_used),
        "selfNonPreemptibleRequest": nonzero(info.self_np_request),
        "selfNonPreemptibleUsed": nonzero(info.self_np_used),
        "allocated": nonzero(info.allocated),
        "guaranteed": nonzero(info.guaranteed),
    }


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a step changed: trees and quotas that are gone as None, of the others the fields that differ."""
    changed: dict[str, Any] = {name: None for name in before if name not in after}
    for name, tree in after.items():
        old = before.get(name, {"total": None, "capacity": None, "quotas": {}})
        of_tree = {key: dict(tree[key]) for key in ("total", "capacity") if tree[key] != old[key]}
        quotas: dict[str, Any] = {quota: None for quota in old["quotas"] if quota not in tree["quotas"]}
        for quota, fields in tree["quotas"].items():
            was = old["quotas"].get(quota)
            differing = {key: value for key, value in fields.items() if value != (was[key] if was else {})}
            if differing:
                quotas[quota] = differing
        if quotas:
            of_tree["quotas"] = quotas
        if of_tree:
            changed[name] = of_tree
    return changed
