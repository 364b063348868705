"""The reason why a pending pod is not being scheduled at the moment, for people.

A function of the settled cache and `now`, like a cycle. It is not recorded, since it changes as time passes.

Source: spec/scheduler-core.md 1.3.
"""

from typing import Any

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.explain.waiting_pods import not_queued
from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.registry import text
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.kube.instants import instant_text


def pending_status_of(cache: CycleInputs, pod_record: PodRecord, now_ns: int) -> Reason | None:
    """Returns the reason why the pod is not tried, or when it will be; None for a pod that needs no node any more."""
    view, pod_class = cache.view, pod_record.pod_class
    if pod_record.node or pod_record.ended or pod_class is None:
        return None
    if (reason := not_queued(view, cache.profiles, pod_record)) is not None:
        return reason
    held_back = cache.queue.grouped(pod_record).membership.held_back
    if held_back is not None:
        return held_back
    cache.queue.advance(now_ns)
    status = cache.queue.status_of(pod_record.uid)
    if status is None:
        return Reason("AwaitsQuota")
    code, until_ns = status
    return Reason(code, instant_text(until_ns) if until_ns else "")


def pending_status(cache: CycleInputs, name: str, now_ns: int) -> dict[str, Any] | None:
    """Returns a pod's status as JSON, by `namespace/name`; None when there is no such pod."""
    cache.settle()
    pod_record = next(
        (pod_record for pod_record in cache.view.pods.values() if pod_record.name == name and pod_record.since), None
    )
    if pod_record is None:
        return None
    reason = pending_status_of(cache, pod_record, now_ns)
    refused = [{"plugin": plugin, "code": code} for plugin, code in pod_record.reasons]
    if reason is None:
        return {"pod": name, "uid": pod_record.uid, "waits": False, "node": pod_record.node}
    return {
        "pod": name,
        "uid": pod_record.uid,
        "waits": True,
        "code": reason.code,
        "detail": reason.detail,
        "text": {language: text(reason.code, reason.detail, language) for language in ("en", "zh")},
        "attempts": pod_record.attempts,
        "refusedBy": refused if pod_record.attempts else [],
    }
