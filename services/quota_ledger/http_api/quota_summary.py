"""Quotas in the form of upstream's debug API.

Source: spec/quota.md 8; upstream core/quota_summary.go, plugin_service.go.
"""

from collections.abc import Mapping
from typing import Any

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.decide.quota_status import texts
from services.quota_ledger.tree.quota_info import QuotaInfo
from shared.kube.elastic_quota import ROOT

Json = dict[str, Any]


def quota(projection: LedgerProjection, name: str, *, version: int, pods: bool = False) -> Json | None:
    """Returns one quota's summary; None for an unknown name. `koordinator-root-quota` is the default tree's root.

    Args:
        version: seq of the newest event folded; shown as the runtime's version.
        pods: include its own pods with their requests.
    """
    tree = projection.tree_of.get(name, "")
    info = projection.trees[tree].quotas.get(name)
    return _summary(projection, tree, info, version=version, pods=pods) if info is not None else None


def quotas(projection: LedgerProjection, tree: str, *, version: int, pods: bool = False) -> Json:
    """Returns name -> summary of every quota but the roots; of one tree, or of all when `tree` is empty."""
    found: Json = {}
    for each, there in sorted(projection.trees.items()):
        if tree in ("", each):
            for name, info in sorted(there.quotas.items()):
                if name != ROOT:
                    found[name] = _summary(projection, each, info, version=version, pods=pods)
    return found


def _summary(projection: LedgerProjection, tree: str, info: QuotaInfo, *, version: int, pods: bool) -> Json:
    declared = info.declared
    runtime = projection.trees[tree].capacity if info.name == ROOT else info.runtime
    summary: Json = {
        "name": info.name,
        "parentName": declared.parent,
        "isParent": declared.is_parent,
        "runtimeVersion": version,
        "allowLentResource": info.lends,
        "tree": tree,
        "max": _list(declared.max),
        "min": _list(declared.min),
        "autoScaleMin": _list(info.scaled_min),
        "used": _list(info.used),
        "nonPreemptibleUsed": _list(info.np_used),
        "request": _list(info.request),
        "nonPreemptibleRequest": _list(info.np_request),
        "sharedWeight": _list(declared.weight),
        "runtime": _list(runtime),
        "childRequest": _list(info.child_request),
        "allocated": _list(info.allocated),
        "guaranteed": _list(info.guaranteed),
        "selfUsed": _list(info.self_used),
        "selfNonPreemptibleUsed": _list(info.self_np_used),
        "selfRequest": _list(info.self_request),
        "selfNonPreemptibleRequest": _list(info.self_np_request),
    }
    if pods and (uids := projection.pods_of(info.name)):
        named = sorted((projection.pods.name(uid), uid) for uid in uids)
        summary["podCache"] = {
            name: {"isAssigned": (pod := projection.pods[uid]).charged, "resource": _list(pod.request)}
            for name, uid in named
        }
    return summary


def _list(amounts: Mapping[str, int]) -> dict[str, str]:
    return texts(amounts, amounts)
