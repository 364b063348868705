"""The standing of a pod in its quota: the quota that is short, its users, and the borrowers beside it."""

import msgspec

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.decide.admission import AdmissionRules, Shortfall, shortfall
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import Amounts, mask, sub, total

MAX_USERS = 5
"""Pods listed, at most."""


class QuotaUsers(msgspec.Struct, frozen=True):
    """The pods that use the missing resources, the largest first.

    Attributes:
        pods: namespace/name -> its use; `more`: number of the others, and the sum of their use.
    """

    pods: dict[str, dict[str, int]]
    more: int
    more_used: dict[str, int]


class PodExplanation(msgspec.Struct, frozen=True):
    """Result of the comparison of a pod with its quota, with the resources that are short.

    Attributes:
        state: `used`, `fits`, `short`, or `rejected`: the pod waits because the quota that its label names is rejected.
        text: the scheduler's message where it is short; the reason of the rejection.
        missing_quota: the quota that its label names and that does not exist.
        short_of: the quota that is short: the pod's own or one above.
        missing: resource -> excess over the limit of `short_of`.
        used_by: the pods that use that quota.
        bounded_by: `max` or `min` where this bound of `short_of` stops the pod whatever others release, with its
            amount in `bound`.
        borrowers: quotas at the same level or above it whose runtime exceeds their effective min, with the excess: as
            their demand falls, it is shared again.
    """

    pod: str
    quota: str
    matched_by: str
    state: str
    text: str = ""
    missing_quota: str = ""
    short_of: str = ""
    missing: dict[str, int] = msgspec.field(default_factory=dict)
    used_by: QuotaUsers | None = None
    bounded_by: str = ""
    bound: dict[str, int] = msgspec.field(default_factory=dict)
    borrowers: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)


def explain_pod(projection: LedgerProjection, uid: str, rules: AdmissionRules, label: str = "") -> PodExplanation:
    """Explains whether a pod fits into its quota, and why not.

    Args:
        label: the quota that the pod's label names; empty without one.
    """
    pod, name = projection.pods[uid], projection.pods.name(uid)
    tree = projection.trees[pod.tree]
    is_missing = label not in projection.lookup.quotas and label not in projection.rejected
    missing_quota = label if is_missing else ""
    if pod.charged:
        return PodExplanation(name, pod.quota, pod.matched_by, "used", missing_quota=missing_quota)
    if rules.rejected_waits and pod.matched_by == "default" and (found := _rejection(projection, name, label)):
        quota, reason = found
        return PodExplanation(name, quota, "label" if label else "namespace", "rejected", text=reason)
    short = shortfall(tree, pod.quota, pod.request, preemptible=pod.preemptible, rules=rules)
    if short is None:
        return PodExplanation(name, pod.quota, pod.matched_by, "fits", missing_quota=missing_quota)
    excess = sub(total((short.used, short.request)), short.limit)
    missing = {resource: excess[resource] for resource in short.exceeded}
    bounded_by, bound = _bound(tree, short)
    return PodExplanation(
        name,
        pod.quota,
        pod.matched_by,
        "short",
        text=short.explained(),
        short_of=short.quota,
        missing=missing,
        used_by=_users(projection, tree, short, missing),
        bounded_by=bounded_by,
        bound=bound,
        borrowers={} if bounded_by else _borrowers(tree, short.quota, missing),
    )


def _rejection(projection: LedgerProjection, pod: str, label: str) -> tuple[str, str] | None:
    """Returns the rejected quota of a pod and the reason: the one that its label names, or that of its namespace."""
    namespace = pod.partition("/")[0]
    quota = label or namespace
    if quota in projection.rejected and quota not in projection.lookup.quotas:
        return quota, projection.rejected[quota]
    for key, reason in () if label else projection.duplicates.get(quota, {}).items():
        if key.split("/")[1] == namespace:
            return quota, reason
    return None


def _bound(tree: QuotaTree, short: Shortfall) -> tuple[str, Amounts]:
    declared = tree.quotas[short.quota].declared
    if short.stage == "nonPreemptible":
        return "min", mask(declared.min, short.exceeded)
    needed = total((short.used, short.request))
    bound = {name: size for name in short.exceeded if needed[name] > (size := declared.max.get(name, needed[name]))}
    return ("max", bound) if bound else ("", {})


def _users(projection: LedgerProjection, tree: QuotaTree, short: Shortfall, missing: Amounts) -> QuotaUsers:
    """Only pods that must not be preempted count against min."""
    below = {name for name in tree.quotas if short.quota in (info.name for info in tree.path(name))}
    users = [
        (mask(pod.request, missing), projection.pods.name(uid))
        for quota in sorted(below)
        for uid in projection.pods_of(quota)
        if (pod := projection.pods[uid]).charged and not (pod.preemptible and short.stage == "nonPreemptible")
    ]
    users.sort(key=lambda each: (-sum(each[0].values()), each[1]))
    rest = [used for used, _ in users[MAX_USERS:]]
    return QuotaUsers({name: used for used, name in users[:MAX_USERS]}, len(rest), total(rest))


def _borrowers(tree: QuotaTree, quota: str, missing: Amounts) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {}
    for info in tree.path(quota)[:-1]:
        for sibling in tree.sharing_children(info.declared.parent):
            borrowed = {}
            for name in missing:
                effective_min = max(sibling.scaled_min.get(name, 0), sibling.guaranteed.get(name, 0))
                if sibling is not info and sibling.runtime.get(name, 0) > effective_min:
                    borrowed[name] = sibling.runtime[name] - effective_min
            if borrowed:
                found[sibling.name] = borrowed
    return found
