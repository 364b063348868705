"""Upstream's answers to the `quota-admission` cases. Source: spec/quota.md 6."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.upstream.quota.fair_share import wrapped
from cli.parity.upstream.quota.filter_result import Rejection, limit_of, rejection_of
from cli.parity.upstream.quota.overuse_revoke import revoke
from cli.parity.upstream.quota.preemption import preempt
from cli.parity.upstream.quota.queueing_hints import hints
from cli.parity.upstream.quota.quirks import Quirk, Quirks
from cli.parity.upstream.quota.quota_info import QuotaInfo
from cli.parity.upstream.quota.quota_plugin import QuotaPlugin
from shared.domain.amounts import nonzero
from shared.kube.instants import duration_ns, instant_ns, instant_text
from shared.kube.pod import Pod

EVENTS_AT = "2026-07-24T00:00:00Z"


def predicted(op: str, given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Returns upstream's answer to one case's input with some of its quirks."""
    match op:
        case "prefilter":
            return _prefilter(given, quirks)
        case "resolve":
            return _resolve(given, quirks)
        case "revoke":
            return revoke(given, quirks)
        case "overuse":
            return _overuse(given)
        case "queueHint":
            return hints(given, quirks)
    return preempt(given, quirks)


def _prefilter(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    scheduler = QuotaPlugin.after(given, quirks)
    attempts = []
    for attempt in given["attempts"]:
        if attempt["registered"]:
            scheduler.take({"type": "podAdd", "pod": attempt["pod"]})
        scheduler.settle()
        pod = msgspec.convert(attempt["pod"], Pod)
        quota, tree = scheduler.resolve(pod)
        if not quota:
            attempts.append({"code": "Skip", "quota": ""})
            continue
        found = rejection_of(scheduler, pod)
        attempts.append(_shown(scheduler, scheduler.trees[tree].quotas[quota], found))
        if attempt["reserve"] and found is None:
            scheduler.take({"type": "reserve", "pod": attempt["pod"]})
    return {"attempts": attempts}


def _shown(scheduler: QuotaPlugin, info: QuotaInfo, found: Rejection | None) -> dict[str, Any]:
    """Returns an attempt as it is recorded."""
    limit = limit_of(scheduler, info)
    shown = {name: size for name, size in limit.items() if size or name in info.declared.max}
    if Quirk.WEIGHTS_WRAP in scheduler.quirks:
        shown = {name: wrapped(size) for name, size in shown.items()}
    seen = {
        "quota": info.name,
        "limit": shown,
        "used": nonzero(info.used),
        "nonPreemptibleUsed": nonzero(info.np_used),
    }
    return {"code": "Success", **seen} if found is None else {**seen, **found.refusal(), "message": found.text()}


def _resolve(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    scheduler = QuotaPlugin({"args": {}, "featureGates": given["featureGates"], "now": EVENTS_AT}, quirks)
    created: dict[str, Any] = {}
    for quota in given["quotas"]:
        if "deleted" in quota:
            scheduler.take({"type": "quotaDelete", "quota": created[quota["deleted"]]})
        else:
            created[quota["metadata"]["name"]] = quota
            scheduler.take({"type": "quotaAdd", "quota": quota})
    found = (scheduler.resolve(msgspec.convert(raw, Pod)) for raw in given["pods"])
    return {"pods": [{"quota": quota, "tree": tree} for quota, tree in found]}


def _overuse(given: Mapping[str, Any]) -> dict[str, Any]:
    under_ns = instant_ns(given["start"])
    delay_ns = duration_ns(given["args"].get("delayEvictTime", "120s"))
    observations = []
    for observed in given["observations"]:
        at_ns = instant_ns(observed["at"])
        triggers = observed["overused"] and at_ns - under_ns > delay_ns
        if triggers or not observed["overused"]:
            under_ns = at_ns
        observations.append({"trigger": triggers, "lastUnderUsedTime": instant_text(under_ns)})
    return {"observations": observations}
