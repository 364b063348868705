"""The `quota-admission` cases: room for pods, the quota of a pod, over-use, preemption inside a quota, wake-ups."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.runners.quota.overuse_cases import overuse, revoke
from cli.parity.runners.quota.preemption_cases import preempt
from cli.parity.runners.quota.queueing_hint_cases import hints
from cli.parity.runners.quota.recorded_ledger import RecordedLedger, pod_key
from services.quota_ledger.decide.admission import limit_of, shortfall
from services.quota_ledger.decide.charge import charge
from services.quota_ledger.pods.pod_request import counted_request, is_preemptible
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import mask, nonzero
from shared.domain.quota_charge import ChargeRequest
from shared.kube.pod import Pod

EVENTS_AT = "2026-07-24T00:00:00Z"


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer to one case's input, in the shape of the recorded output without its remarks."""
    match op:
        case "prefilter":
            return prefilter(given)
        case "resolve":
            return resolve(given)
        case "revoke":
            return revoke(given)
        case "overuse":
            return overuse(given)
        case "queueHint":
            return hints(given)
    return preempt(given)


def prefilter(given: Mapping[str, Any]) -> dict[str, Any]:
    """Charges pods one after the other; the charges of those that are to be reserved stay."""
    ledger = RecordedLedger.after(given)
    return {"attempts": [_attempt(ledger, attempt, number) for number, attempt in enumerate(given["attempts"], 1)]}


def _attempt(ledger: RecordedLedger, attempt: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Charges a pod that the ledger has read of.

    Production never requests a charge for another one; there the rule for one pod decides, on which charges rest.
    """
    if attempt["registered"]:
        ledger.take({"type": "podAdd", "pod": attempt["pod"]})
    key, pod = pod_key(attempt["pod"]), ledger.without_overhead(msgspec.convert(attempt["pod"], Pod))
    quota, tree = ledger.quota_of(pod)
    if tree is None:
        return {"code": "Skip", "quota": ""}
    info = tree.quotas[quota]
    found = {
        "quota": quota,
        "limit": shown(info, limit_of(info, ledger.settings.admission())),
        "used": nonzero(info.used),
        "nonPreemptibleUsed": nonzero(info.np_used),
    }
    refused = _refused(ledger, tree, quota, pod)
    if (held := ledger.held(key)) is not None and not held.charged:
        request = ChargeRequest(epoch=1, cycle=number, seen={}, groups=((key,),))
        drafts, [response] = charge(ledger.state, [request], ledger.settings.admission())
        refused = None if key in response.charged else refused
        if attempt["reserve"]:
            ledger.record([draft.event for draft in drafts])
    return {"code": "Success", **found} if refused is None else {**found, **refused}


def _refused(ledger: RecordedLedger, tree: QuotaTree, quota: str, pod: Pod) -> dict[str, Any] | None:
    request = mask(counted_request(pod), tree.quotas[quota].declared.max)
    rules = ledger.settings.admission()
    short = shortfall(tree, quota, request, preemptible=is_preemptible(pod), rules=rules)
    if short is None:
        return None
    refusal = {"code": "Unschedulable", "stage": short.stage, "exceed": list(short.exceeded), "message": short.text()}
    return refusal | ({"ancestor": short.quota} if short.stage == "ancestor" else {})


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the quota and the tree of each pod."""
    ledger = RecordedLedger({"args": {}, "featureGates": given["featureGates"], "now": EVENTS_AT})
    created: dict[str, Any] = {}
    for quota in given["quotas"]:
        if "deleted" in quota:
            ledger.take({"type": "quotaDelete", "quota": created[quota["deleted"]]})
        else:
            created[quota["metadata"]["name"]] = quota
            ledger.take({"type": "quotaAdd", "quota": quota})
    found = []
    for raw in given["pods"]:
        pod = msgspec.convert(raw, Pod)
        quota, _ = ledger.state.projection.lookup.resolve(pod.metadata.namespace, pod.metadata.labels)
        found.append({"quota": quota, "tree": ledger.state.projection.tree_of.get(quota, "")})
    return {"pods": found}


def shown(info: QuotaInfo, limit: Mapping[str, int]) -> dict[str, int]:
    """Returns a limit without the zeros of resources that the quota itself does not name."""
    return {name: size for name, size in limit.items() if size or name in info.declared.max}
