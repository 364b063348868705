"""The comparison of a pod with its quota, its min, and its ancestors. Source: spec/quota.md 6.1."""

from collections.abc import Mapping
from typing import Any

from cli.parity.upstream.quota.quota_info import QuotaInfo
from cli.parity.upstream.quota.quota_plugin import QuotaPlugin
from services.quota_ledger.decide.admission import Shortfall
from services.quota_ledger.pods.pod_request import is_preemptible
from shared.domain.amounts import add, exceeding, mask
from shared.kube.elastic_quota import ROOT
from shared.kube.pod import Pod


class Rejection(Shortfall, frozen=True, kw_only=True):
    """A refusal, with the words that upstream and production share."""

    def refusal(self) -> dict[str, Any]:
        """Returns the refusal as it is recorded, without its text."""
        found = {"code": "Unschedulable", "stage": self.stage, "exceed": list(self.exceeded)}
        return found | ({"ancestor": self.quota} if self.stage == "ancestor" else {})


def limit_of(scheduler: QuotaPlugin, info: QuotaInfo) -> Mapping[str, int]:
    """Returns the amounts that a quota may use: its runtime, or its max by argument."""
    return info.runtime if scheduler.args.get("enableRuntimeQuota", True) else info.declared.max


def rejection_of(scheduler: QuotaPlugin, pod: Pod) -> Rejection | None:
    """Returns why a managed pod is refused by its quota; None when there is room."""
    quota, tree = scheduler.resolve(pod)
    own, *above = scheduler.trees[tree].path(quota)
    request = scheduler.counted(quota, tree, pod)
    checks = [("quota", own, limit_of(scheduler, own), own.used)]
    if not is_preemptible(pod):
        checks.append(("nonPreemptible", own, own.declared.min, own.np_used))
    if scheduler.args.get("enableCheckParentQuota", False):
        checks += [("ancestor", each, limit_of(scheduler, each), each.used) for each in above if each.name != ROOT]
    for stage, info, limit, used in checks:
        after = add(used, request)
        if exceeded := exceeding(mask(after, request) if stage == "ancestor" else after, limit):
            path = [own, *above]
            topmost = path.index(info) + 1 if stage == "ancestor" else 0
            return Rejection(
                stage=stage,
                quota=info.name,
                limit=dict(limit),
                used=dict(used),
                request=dict(request),
                exceeded=tuple(exceeded),
                path=tuple(each.name for each in reversed(path[:topmost])),
            )
    return None
