"""Why a pod that waits is not being tried at the moment: for people who look at a pod that stays Pending.

A function of the settled index and `now`, like the cycles themselves; nothing of it is recorded, for it changes as time passes.

Source: spec/scheduler-core.md 1.3.
"""

from typing import Any

from services.scheduler.cache.scheduling_cache import Index
from services.scheduler.framework.reasons import Reason, text
from services.scheduler.state.pod_record import PodFacts
from shared.kube.instants import instant_text


def standing_of(index: Index, facts: PodFacts, now_ns: int) -> Reason | None:
    """Why the pod is not attempted, or when it will be; None for one that needs no node any more."""
    view, ask = index.view, facts.ask
    if facts.node or facts.ended or ask is None:
        return None
    if facts.deleting:
        return Reason("Deleting")
    if ask.gated:
        return Reason("SchedulingGated", ", ".join(gate.name for gate in ask.pod.spec.scheduling_gates))
    if ask.scheduler not in index.profiles:
        return Reason("OtherScheduler", ask.scheduler)
    if facts.placed_seq > facts.refused_seq:
        return Reason("BindingUnderWay", facts.placed_node)
    if facts.withheld_seq and facts.withheld_seq >= view.gateway_since:
        return Reason("Withheld")
    index.queue.advance(now_ns)
    stands = index.queue.standing(facts.uid)
    if stands is None:
        return Reason("AwaitsQuota")
    code, until_ns = stands
    return Reason(code, instant_text(until_ns) if until_ns else "")


def told(index: Index, name: str, now_ns: int) -> dict[str, Any] | None:
    """A pod's standing as JSON, by `namespace/name`; None when there is no such pod."""
    index.settle()
    facts = next((facts for facts in index.view.pods.values() if facts.name == name and facts.since), None)
    if facts is None:
        return None
    reason = standing_of(index, facts, now_ns)
    refused = [{"plugin": plugin, "code": code} for plugin, code in facts.reasons]
    if reason is None:
        return {"pod": name, "uid": facts.uid, "waits": False, "node": facts.node}
    return {
        "pod": name,
        "uid": facts.uid,
        "waits": True,
        "code": reason.code,
        "detail": reason.detail,
        "text": {language: text(reason.code, reason.detail, language) for language in ("en", "zh")},
        "attempts": facts.attempts,
        "refusedBy": refused if facts.attempts else [],
    }
