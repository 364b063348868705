"""Quotas as upstream's debug API shows them. Source: spec/quota.md 8; upstream core/quota_summary.go, plugin_service.go."""

from collections.abc import Mapping
from typing import Any

from services.quota_ledger.accounting.projection import LedgerProjection
from services.quota_ledger.decide.quota_status import texts
from services.quota_ledger.tree.quota_info import QuotaInfo
from shared.kube.elastic_quota import ROOT

Json = dict[str, Any]


def quota(books: LedgerProjection, name: str, *, version: int, pods: bool = False) -> Json | None:
    """One quota's summary; None when there is none of that name. `koordinator-root-quota` is the default tree's.

    Args:
        version: seq of the books, given as the runtime's version.
        pods: also what each of its own pods asks for, and whether it uses it.
    """
    tree = books.tree_of.get(name, "")
    account = books.trees[tree].accounts.get(name)
    return _summary(books, tree, account, version=version, pods=pods) if account is not None else None


def quotas(books: LedgerProjection, tree: str, *, version: int, pods: bool = False) -> Json:
    """Name -> summary of every quota but the roots; of one tree, or of all when `tree` is empty."""
    found: Json = {}
    for each, there in sorted(books.trees.items()):
        if tree in ("", each):
            for name, account in sorted(there.accounts.items()):
                if name != ROOT:
                    found[name] = _summary(books, each, account, version=version, pods=pods)
    return found


def _summary(books: LedgerProjection, tree: str, account: QuotaInfo, *, version: int, pods: bool) -> Json:
    declared = account.declared
    runtime = books.trees[tree].capacity if account.name == ROOT else account.runtime
    summary: Json = {
        "name": account.name,
        "parentName": declared.parent,
        "isParent": declared.is_parent,
        "runtimeVersion": version,
        "allowLentResource": account.lends,
        "tree": tree,
        "max": _list(declared.max),
        "min": _list(declared.min),
        "autoScaleMin": _list(account.scaled_min),
        "used": _list(account.used),
        "nonPreemptibleUsed": _list(account.np_used),
        "request": _list(account.request),
        "nonPreemptibleRequest": _list(account.np_request),
        "sharedWeight": _list(declared.weight),
        "runtime": _list(runtime),
        "childRequest": _list(account.child_request),
        "allocated": _list(account.allocated),
        "guaranteed": _list(account.guaranteed),
        "selfUsed": _list(account.self_used),
        "selfNonPreemptibleUsed": _list(account.self_np_used),
        "selfRequest": _list(account.self_request),
        "selfNonPreemptibleRequest": _list(account.self_np_request),
    }
    if pods and (uids := books.pods_of.get(account.name)):
        held = (books.pods[uid] for uid in uids)
        summary["podCache"] = {
            pod.pod: {"isAssigned": pod.charged, "resource": _list(pod.request)}
            for pod in sorted(held, key=lambda each: each.pod)
        }
    return summary


def _list(amounts: Mapping[str, int]) -> dict[str, str]:
    return texts(amounts, amounts)
