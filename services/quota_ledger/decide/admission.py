"""Compares a pod's request with its quota: runtime or max, min, and the quotas above.

Source: spec/quota.md 6.1; upstream pkg/scheduler/plugins/elasticquota/{plugin.go,plugin_helper.go}.
"""

from collections.abc import Mapping, Sequence

import msgspec

from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import Amounts, add, exceeding_with
from shared.kube.elastic_quota import RESERVED, ROOT
from shared.kube.quantity_text import amount_text


class AdmissionRules(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the comparison.

    Attributes:
        runtime: compare with the runtime; else with max.
        parents: compare every ancestor below the root, too.
        bounds_reserved: the maxima of the system and default groups hold also with runtime quota; upstream's do not.
        rejected_waits: pods of a quota that is rejected are not charged; else they count in the default group.
    """

    runtime: bool = True
    parents: bool = False
    bounds_reserved: bool = False
    rejected_waits: bool = True


class Shortfall(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison that failed.

    Attributes:
        stage: `quota` for the pod's own, `nonPreemptible` for its min, `ancestor` for a quota above.
        quota: the quota that is short.
        path: from the ancestor that is short down to the pod's quota, of the stage `ancestor`.
        limit, used: the amounts compared there; the pod's request comes on top of `used`.
        exceeded: the resources that are short, sorted.
        unlimited: resources of `limit` that max lacks: the 0 there limits nothing.
    """

    stage: str
    quota: str
    limit: dict[str, int]
    used: dict[str, int]
    request: dict[str, int]
    exceeded: tuple[str, ...]
    path: tuple[str, ...] = ()
    unlimited: tuple[str, ...] = ()

    def text(self) -> str:
        """Returns upstream's message, which has a limit of 0 also in resources that limit nothing."""
        return self._text(self.limit)

    def explained(self) -> str:
        """Returns the message without the limits that limit nothing."""
        return self._text({name: size for name, size in self.limit.items() if name not in self.unlimited})

    def _text(self, limit: Mapping[str, int]) -> str:
        exceeded = " ".join(self.exceeded)
        tail = f"pod's request: {listed(self.request)}, exceedDimensions: [{exceeded}]"
        if self.stage == "nonPreemptible":
            return (
                f"Insufficient non-preemptible quotas, quotaName: {self.quota}, min: {listed(limit)}, "
                f"nonPreemptibleUsed: {listed(self.used)}, {tail}"
            )
        where = f"quotaNameTopo: [{' '.join(self.path)}]" if self.path else f"quotaName: {self.quota}"
        return f"Insufficient quotas, {where}, runtime: {listed(limit)}, used: {listed(self.used)}, {tail}"


def limit_of(info: QuotaInfo, rules: AdmissionRules) -> Mapping[str, int]:
    """Returns the limit of a quota; a resource that is absent is not limited."""
    if rules.runtime and not (rules.bounds_reserved and info.name in RESERVED):
        return info.runtime
    return info.declared.max


NOTHING: Mapping[str, Amounts] = {}
NO_LIMIT = float("inf")
"""Compares exactly with an integer of any size."""


def shortfall(
    tree: QuotaTree,
    name: str,
    request: Mapping[str, int],
    *,
    preemptible: bool,
    rules: AdmissionRules,
    extra_used: Mapping[str, Amounts] = NOTHING,
    extra_np_used: Mapping[str, Amounts] = NOTHING,
) -> Shortfall | None:
    """Returns the first comparison that fails; None when the pod fits.

    The pod's own quota is compared in every resource: overused memory stops even a pod that requests only cpu. Its min
    is compared for a pod that is not preemptible, in the resources of min. Ancestors are compared only in the pod's
    own resources.

    Args:
        request: the pod's, in the resources that its quota counts.
        extra_used, extra_np_used: by quota, use that the tree does not hold yet; np: of pods that are not preemptible.
    """
    path = tree.path(name)
    own = path[0]
    limit, used = limit_of(own, rules), own.used
    if extra_used:
        used = _with(used, extra_used.get(name))
    if short := exceeding_with(used, request, limit):
        return _short("quota", own, limit, used, request, short)
    if not preemptible:
        np_used = _with(own.np_used, extra_np_used.get(name))
        if short := exceeding_with(np_used, request, own.declared.min):
            return _short("nonPreemptible", own, own.declared.min, np_used, request, short)
    return _shortfall_above(path, request, rules, extra_used) if rules.parents else None


def _shortfall_above(
    path: Sequence[QuotaInfo], request: Mapping[str, int], rules: AdmissionRules, extra_used: Mapping[str, Amounts]
) -> Shortfall | None:
    """Returns the first ancestor that is short. That is rare, so no list is built before one is found."""
    requested = tuple(request.items())
    is_runtime = rules.runtime and not rules.bounds_reserved
    for at in range(1, len(path)):
        info = path[at]
        if info.name == ROOT:
            break
        limit = info.runtime if is_runtime else limit_of(info, rules)
        used = info.used
        if extra_used:
            used = _with(used, extra_used.get(info.name))
        for key, size in requested:
            if used.get(key, 0) + size > limit.get(key, NO_LIMIT):
                short = sorted(key for key, size in requested if used.get(key, 0) + size > limit.get(key, NO_LIMIT))
                found = _short("ancestor", info, limit, used, request, short)
                return msgspec.structs.replace(found, path=tuple(each.name for each in reversed(path[: at + 1])))
    return None


def listed(one: Mapping[str, int]) -> str:
    """Returns a resource list in one line: `cpu:1500m,memory:2Gi`."""
    return ",".join(f"{name}:{amount_text(name, size)}" for name, size in sorted(one.items())) or "<empty>"


def _with(used: Amounts, more: Amounts | None) -> Amounts:
    return add(used, more) if more else used


def _short(
    stage: str,
    info: QuotaInfo,
    limit: Mapping[str, int],
    used: Mapping[str, int],
    request: Mapping[str, int],
    exceeded: list[str],
) -> Shortfall:
    return Shortfall(
        stage=stage,
        quota=info.name,
        limit=dict(limit),
        used=dict(used),
        request=dict(request),
        exceeded=tuple(exceeded),
        unlimited=tuple(name for name in limit if name not in info.declared.max),
    )
