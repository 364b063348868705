"""Where a pod stands with its quota: which account is short of what, who holds it, and what would free it."""

import msgspec

from services.quota_ledger.accounting.projection import LedgerProjection
from services.quota_ledger.decide.admission import AdmissionRules, Shortfall, shortfall
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import Amounts, mask, sub, total

MOST_HOLDERS = 5


class Holders(msgspec.Struct, frozen=True):
    """Pods that use what is missing, the largest first.

    Attributes:
        pods: namespace/name -> what it uses of it; `more` how many others there are, and what they use together.
    """

    pods: dict[str, dict[str, int]]
    more: int
    more_used: dict[str, int]


class WhyPod(msgspec.Struct, frozen=True):
    """Where a pod stands with its quota.

    Attributes:
        state: `used`, `fits` or `short`.
        text: the scheduler's own words where it is short.
        missing: resource -> by how much the account `short_of` is exceeded.
        held_by: who uses that account.
        bounded_by: `max` or `min` where the account's own stops the pod, whatever others give back, and `bound` how much that is; else empty.
        frees: quotas it shares with, there or above, which use more than their min in force: what they gave back would be shared anew.
    """

    pod: str
    quota: str
    matched_by: str
    state: str
    text: str = ""
    short_of: str = ""
    missing: dict[str, int] = msgspec.field(default_factory=dict)
    held_by: Holders | None = None
    bounded_by: str = ""
    bound: dict[str, int] = msgspec.field(default_factory=dict)
    frees: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)


def why(projection: LedgerProjection, uid: str, rules: AdmissionRules) -> WhyPod:
    """Which account a pod is short of, who holds it, and who could give it back."""
    pod = projection.pods[uid]
    tree = projection.trees[pod.tree]
    if pod.charged:
        return WhyPod(pod.pod, pod.quota, pod.matched_by, "used")
    short = shortfall(tree, pod.quota, pod.request, preemptible=pod.preemptible, rules=rules)
    if short is None:
        return WhyPod(pod.pod, pod.quota, pod.matched_by, "fits")
    over = sub(total((short.used, short.request)), short.limit)
    missing = {name: over[name] for name in short.exceeded}
    bounded_by, bound = _bound(tree, short)
    return WhyPod(
        pod.pod,
        pod.quota,
        pod.matched_by,
        "short",
        text=short.text(),
        short_of=short.quota,
        missing=missing,
        held_by=_holders(projection, tree, short, missing),
        bounded_by=bounded_by,
        bound=bound,
        frees={} if bounded_by else _borrowers(tree, short.quota, missing),
    )


def _bound(tree: QuotaTree, short: Shortfall) -> tuple[str, Amounts]:
    declared = tree.quotas[short.quota].declared
    if short.stage == "nonPreemptible":
        return "min", mask(declared.min, short.exceeded)
    wanted = total((short.used, short.request))
    most = {name: size for name in short.exceeded if wanted[name] > (size := declared.max.get(name, wanted[name]))}
    return ("max", most) if most else ("", {})


def _holders(projection: LedgerProjection, tree: QuotaTree, short: Shortfall, missing: Amounts) -> Holders:
    """Of pods that must not be preempted only such are compared with min."""
    below = {name for name in tree.quotas if short.quota in (info.name for info in tree.path(name))}
    held = [
        (mask(pod.request, missing), pod.pod)
        for quota in sorted(below)
        for pod in (projection.pods[uid] for uid in projection.pods_of.get(quota, ()))
        if pod.charged and not (pod.preemptible and short.stage == "nonPreemptible")
    ]
    held.sort(key=lambda each: (-sum(each[0].values()), each[1]))
    rest = [uses for uses, _ in held[MOST_HOLDERS:]]
    return Holders({pod: uses for uses, pod in held[:MOST_HOLDERS]}, len(rest), total(rest))


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
