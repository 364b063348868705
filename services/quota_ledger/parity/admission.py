"""The `quota-admission` vectors: room for pods, which quota is whose, over-use, preemption inside a quota, wake-ups."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.quota_ledger.account import Account
from services.quota_ledger.admission import AdmissionRules, Shortfall, limit_of, shortfall
from services.quota_ledger.parity.arrivals import Arrivals
from services.quota_ledger.parity.preemption import preempt
from services.quota_ledger.resolve import counted_request, is_preemptible
from services.quota_ledger.revoke import Holder, Overuse, victims
from services.quota_ledger.sharing import wrapped
from services.quota_ledger.switches import UPSTREAM
from services.quota_ledger.tree import Tree
from services.quota_ledger.wake import wakes_by_pod, wakes_by_quota
from shared.domain.amounts import exceeding, nonzero
from shared.kube.elastic_quota import RESERVED, ROOT, declared
from shared.kube.instants import duration_ns, instant_ns, instant_text
from shared.kube.pod import Pod

EVENTS_AT = "2026-07-24T00:00:00Z"


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What our code says to one case's input, in the shape of the case's output."""
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
    return preempt(after_events(given), given)


def after_events(given: Mapping[str, Any]) -> Arrivals:
    """The books after the case's events."""
    books = Arrivals(given)
    for event in given["events"]:
        books.take(event)
    books.settle()
    return books


def rules_of(args: Mapping[str, Any]) -> AdmissionRules:
    """What is compared, by the scheduler's arguments."""
    return AdmissionRules(
        runtime=args.get("enableRuntimeQuota", True), parents=args.get("enableCheckParentQuota", False)
    )


def prefilter(given: Mapping[str, Any]) -> dict[str, Any]:
    """Pods one after the other, some of them reserved when there is room."""
    books, rules = after_events(given), rules_of(given["args"])
    said = []
    for attempt in given["attempts"]:
        if attempt["registered"]:
            books.take({"type": "podAdd", "pod": attempt["pod"]})
        books.settle()
        found = judge(books, attempt["pod"], rules)
        if attempt["reserve"] and found["code"] == "Success":
            books.take({"type": "reserve", "pod": attempt["pod"]})
        said.append(found)
    return {"attempts": said}


def judge(books: Arrivals, raw: Mapping[str, Any], rules: AdmissionRules) -> dict[str, Any]:
    """One pod against its quota."""
    pod = msgspec.convert(raw, Pod)
    quota, name = books.resolve(pod)
    if not quota:
        return {"code": "Skip", "quota": ""}
    tree: Tree = books.trees[name]
    account = tree.accounts[quota]
    request = books.counted(quota, name, pod)
    seen = {
        "quota": quota,
        "limit": {resource: wrapped(size) for resource, size in _shown(account, limit_of(account, rules)).items()},
        "used": nonzero(account.used),
        "nonPreemptibleUsed": nonzero(account.np_used),
    }
    short = shortfall(tree, quota, request, preemptible=is_preemptible(pod), rules=rules)
    return {"code": "Success", **seen} if short is None else {**seen, **refusal(short), "message": short.text()}


def refusal(short: Shortfall) -> dict[str, Any]:
    """A refusal without its text."""
    said = {"code": "Unschedulable", "stage": short.stage, "exceed": list(short.exceeded)}
    return said | ({"ancestor": short.quota} if short.stage == "ancestor" else {})


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Which quota each pod belongs to."""
    books = Arrivals({"args": {}, "featureGates": given["featureGates"], "now": EVENTS_AT})
    created: dict[str, Any] = {}
    for quota in given["quotas"]:
        if "deleted" in quota:
            books.take({"type": "quotaDelete", "quota": created[quota["deleted"]]})
        else:
            created[quota["metadata"]["name"]] = quota
            books.take({"type": "quotaAdd", "quota": quota})
    found = (books.resolve(msgspec.convert(raw, Pod)) for raw in given["pods"])
    return {"pods": [{"quota": quota, "tree": tree} for quota, tree in found]}


def revoke(given: Mapping[str, Any]) -> dict[str, Any]:
    """Per quota whether it is over-used, and who would go."""
    books = after_events(given)
    quotas = {}
    for name, tree in books.trees.items():
        for account in tree.accounts.values():
            if account.name in (ROOT, *RESERVED):
                continue
            over = bool(exceeding(account.used, account.runtime))
            holders = [
                Holder(
                    cached.key,
                    counted_request(cached.pod, overhead="ElasticQuotaIgnorePodOverhead" not in books.gates),
                    cached.pod.spec.priority or 0,
                    instant_ns(cached.pod.status.start_time) if cached.pod.status.start_time else books.now_ns,
                    is_preemptible(cached.pod),
                )
                for cached in books.cache.get((name, account.name), {}).values()
                if cached.assigned
            ]
            quotas[account.name] = {
                "overused": over,
                "runtime": _shown(account, account.runtime),
                "used": nonzero(account.used),
                "revoke": victims(account.used, account.runtime, holders, UPSTREAM) if over else [],
            }
    return {"quotas": quotas}


def overuse(given: Mapping[str, Any]) -> dict[str, Any]:
    """When a clock of over-use triggers."""
    clock = Overuse(instant_ns(given["start"]))
    delay_ns = duration_ns(given["args"].get("delayEvictTime", "120s"))
    said = []
    for observed in given["observations"]:
        clock, triggers = clock.observed(instant_ns(observed["at"]), over=observed["overused"], delay_ns=delay_ns)
        said.append({"trigger": triggers, "lastUnderUsedTime": instant_text(clock.under_ns)})
    return {"observations": said}


def hints(given: Mapping[str, Any]) -> dict[str, Any]:
    """Which events wake a pod that its quota refused."""
    books = after_events(given)
    parents = given["args"].get("enableCheckParentQuota", False)
    said = []
    for query in given["queries"]:
        pod, event = msgspec.convert(query["pod"], Pod), query["event"]
        if not given[
            "snapshotTaken"
        ]:  # upstream looks quotas up in a copy made every two minutes; ours knows them at once
            said.append("Queue" if event["type"] == "podDelete" else "QueueSkip")
            continue
        own, tree = books.resolve(pod)
        above = tuple(account.name for account in books.trees[tree].path(own)[1:-1]) if parents else ()
        if event["type"] == "quotaUpdate":
            wakes = wakes_by_quota(declared(event["old"]), declared(event["quota"]), own=own, tree=tree, above=above)
        else:
            other = msgspec.convert(event["pod"], Pod)
            quota, other_tree = books.resolve(other)
            cached = books.cache.get((other_tree, quota), {}).get(other.metadata.key)
            held = cached is not None and cached.assigned and other_tree == tree
            wakes = wakes_by_pod(quota, held=held, own=own, above=above)
        said.append("Queue" if wakes else "QueueSkip")
    return {"hints": said}


def _shown(account: Account, limit: Mapping[str, int]) -> dict[str, int]:
    """Zeros of resources that the quota itself does not name are left out."""
    return {name: size for name, size in limit.items() if size or name in account.declared.max}
