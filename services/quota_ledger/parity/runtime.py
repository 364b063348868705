"""The `quota-runtime` vectors: one level's shares, scaled minima, and whole trees over a history."""

from collections.abc import Mapping
from typing import Any

from services.quota_ledger.account import Account
from services.quota_ledger.parity.arrivals import Arrivals
from services.quota_ledger.sharing import Child, scaled_minima, share
from services.quota_ledger.switches import EXACT, UPSTREAM
from services.quota_ledger.tree import Tree
from shared.domain.amounts import Amounts, nonzero
from shared.kube.elastic_quota import RESERVED, ROOT
from shared.kube.quantity import amounts


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What our code says to one case's input, in the shape of the case's output."""
    match op:
        case "redistribute":
            return redistribute(given)
        case "scaleMin":
            return scale(given)
    return history(given)


def redistribute(given: Mapping[str, Any]) -> dict[str, Any]:
    """One level of a tree, all its resources."""
    total = amounts(given["total"])
    parts = [
        {key: amounts(child[key]) for key in ("floor", "request", "max", "sharedWeight", "guaranteed")}
        for child in given["children"]
    ]
    runtime: dict[str, Amounts] = {child["name"]: {} for child in given["children"]}
    overflows = False
    for resource in given["resources"]:
        children = []
        for child, part in zip(given["children"], parts, strict=True):
            floor = max(part["floor"].get(resource, 0), part["guaranteed"].get(resource, 0))
            asked = part["request"].get(resource, 0)
            ask = min(asked, part["max"].get(resource, asked))
            children.append(Child(child["name"], floor, ask, part["sharedWeight"].get(resource, 0), child["allowLent"]))
        overflows |= sum(child.weight for child in children if child.ask > child.floor) >= 2**63
        for child, got in zip(children, share(total.get(resource, 0), children, UPSTREAM), strict=True):
            runtime[child.name][resource] = got
    return {"runtime": runtime} | ({"weightSumOverflowsInt64": True} if overflows else {})


def scale(given: Mapping[str, Any]) -> dict[str, Any]:
    """The minima of siblings against a capacity."""
    names = [child["name"] for child in given["children"]]
    if not given["scaleEnabled"]:
        return {"quotas": {name: {"applies": False} for name in names}}
    total, minima = amounts(given["total"]), [amounts(child["min"]) for child in given["children"]]
    found = dict(zip(names, scaled_minima(total, minima, UPSTREAM), strict=True))
    exact = dict(zip(names, scaled_minima(total, minima, EXACT), strict=True))
    differs = sorted(
        f"{name}/{resource}"
        for name, scaled in found.items()
        for resource, size in scaled.items()
        if size != exact[name][resource]
    )
    said: dict[str, Any] = {"quotas": {name: {"applies": True, "min": scaled} for name, scaled in found.items()}}
    return said | ({"differsFromExactFloor": differs} if differs else {})


def history(given: Mapping[str, Any]) -> dict[str, Any]:
    """A scheduler's books after each step: what changed in them."""
    books = Arrivals(given)
    before: dict[str, Any] = {}
    steps = []
    for step in given["steps"]:
        for event in step["events"]:
            books.take(event)
        books.settle()
        after = {name: _tree(books, name, tree) for name, tree in books.trees.items()}
        steps.append({"trees": _changes(before, after)})
        before = after
    return {"steps": steps}


def _tree(books: Arrivals, name: str, tree: Tree) -> dict[str, Any]:
    return {
        "total": tree.total,
        "capacity": tree.capacity,
        "quotas": {account.name: _account(books, name, account) for account in tree.accounts.values()},
    }


def _account(books: Arrivals, tree: str, account: Account) -> dict[str, Any]:
    declared = account.declared
    runtime = {name: size for name, size in account.runtime.items() if size or name in declared.max}
    weight = declared.weight
    return {
        "parent": declared.parent,
        "isParent": declared.is_parent,
        "allowLent": account.lends,
        "runtime": runtime,
        "autoScaleMin": {} if account.name in (ROOT, *RESERVED) else nonzero(account.scaled_min),
        "sharedWeight": weight,
        "request": nonzero(account.request),
        "childRequest": {} if account.name == ROOT else nonzero(account.child_request),
        "used": nonzero(account.used),
        "nonPreemptibleRequest": nonzero(account.np_request),
        "nonPreemptibleUsed": nonzero(account.np_used),
        "selfRequest": nonzero(account.self_request),
        "selfUsed": nonzero(account.self_used),
        "selfNonPreemptibleRequest": nonzero(account.self_np_request),
        "selfNonPreemptibleUsed": nonzero(account.self_np_used),
        "allocated": nonzero(account.allocated),
        "guaranteed": nonzero(account.guaranteed),
        "pods": {key: cached.assigned for key, cached in books.cache.get((tree, account.name), {}).items()},
    }


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {name: None for name in before if name not in after}
    for name, tree in after.items():
        old = before.get(name, {"total": None, "capacity": None, "quotas": {}})
        said = {key: dict(tree[key]) for key in ("total", "capacity") if tree[key] != old[key]}
        quotas: dict[str, Any] = {quota: None for quota in old["quotas"] if quota not in tree["quotas"]}
        for quota, fields in tree["quotas"].items():
            was = old["quotas"].get(quota)
            moved = {k: v for k, v in fields.items() if v != (was[k] if was else {})}
            if moved:
                quotas[quota] = moved
        if quotas:
            said["quotas"] = quotas
        if said:
            changed[name] = said
    return changed
