"""Answers ScheduleExplanation objects: whether and where a pod, or a pod made from a template, could be placed now.

For a pod that runs or is placed the answer is its node; a pod that waits, and a template, are evaluated on the present
State. The status is written when the answer changed, and once a minute besides, so that a reader sees that it is
recent. The object is deleted when its `ttl` is over. The key of a gang is answered with a message: gangs are not part
of this release.

Source: spec/api.md 1.11. Upstream declares templates and does not answer them; they are answered here.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.pod_scheduled_condition import message
from services.scheduler.extender_server.evaluate_pod_outside_cycle import BadQuery, EvaluationQuery
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE
from services.scheduler.plugins.registry import REGISTRY, text
from services.scheduler.state.answered_schedule_explanations import EXPLANATIONS, LastAnswer, digest_of
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.instants import SECOND, BadTime, duration_ns, instant_ns, instant_text
from shared.kube.pod import Pod, PodSpec

FIELDS = "answer"
HEARTBEAT_NS = 60 * SECOND
DEFAULT_TTL_NS = 24 * 3600 * SECOND
MAX_PER_CYCLE = 20
"""Objects evaluated in one cycle, so that the service is never held for long; those with the oldest answers come
first."""
MAX_NODES_PER_REASON = 1_000
"""Names of nodes listed for one reason."""

Json = dict[str, Any]


def explanation_drafts(cache: CycleInputs, now_ns: int) -> tuple[Draft, ...]:
    """Returns the status writes and deletions that are due; mostly none. Evaluates all nodes for each object: not for
    every cycle.
    """
    view = cache.view
    if not view.explanations:
        return ()
    drafts: list[Draft] = []
    pods = _named_pods(view)
    by_age = sorted(
        (before.at_ns if (before := _before(view.explanation_answers, key, explanation)) else 0, key)
        for key, explanation in view.explanations.items()
    )
    for _, key in by_age[:MAX_PER_CYCLE]:
        explanation = view.explanations[key]
        uid = explanation["metadata"].get("uid", "")
        if _is_over(explanation, now_ns):
            drafts.append(Draft(ObjectDesired(resource=EXPLANATIONS, name=key, body=None)))
            continue
        answer = _answer(cache, pods, key, explanation, now_ns)
        before, digest = _before(view.explanation_answers, key, explanation), digest_of(answer)
        if before is None or before.digest != digest or now_ns - before.at_ns >= HEARTBEAT_NS:
            status = {**answer, "lastUpdateTime": instant_text(now_ns // SECOND * SECOND)}
            drafts.append(
                Draft(
                    FieldsDesired(
                        resource=EXPLANATIONS,
                        name=key,
                        fields=FIELDS,
                        patch={"status": status},
                        subresource="status",
                        uid=uid,
                    )
                )
            )
    return tuple(drafts)


def _before(answered: Mapping[str, LastAnswer], key: str, explanation: Json) -> LastAnswer | None:
    before = answered.get(key)
    return before if before is not None and before.uid == explanation["metadata"].get("uid", "") else None


def _is_over(explanation: Json, now_ns: int) -> bool:
    created, ttl = explanation["metadata"].get("creationTimestamp"), (explanation.get("spec") or {}).get("ttl")
    try:
        ttl_ns = duration_ns(ttl) if ttl not in (None, "") else DEFAULT_TTL_NS
        return bool(created) and 0 < ttl_ns < now_ns - instant_ns(created)
    except BadTime:
        return False  # the object stays until its ttl is corrected; its status has the error


def _named_pods(view: SchedulerState) -> dict[str, PodRecord]:
    """Returns the pods that the objects name, by `namespace/name`, in one pass over all pods."""
    names = {(explanation.get("spec") or {}).get("questionObjectKey") for explanation in view.explanations.values()}
    found: dict[str, PodRecord] = {}
    for pod_record in view.pods.values():
        if pod_record.name in names and pod_record.since:
            found.setdefault(pod_record.name, pod_record)
    return found


def _answer(cache: CycleInputs, pods: Mapping[str, PodRecord], key: str, explanation: Json, now_ns: int) -> Json:
    try:
        return _answer_spec(cache, pods, key, explanation.get("spec") or {}, now_ns)
    except BadQuery as error:
        return {"schedulable": False, "schedulableAfterPreemption": False, "failedMessage": str(error)}


def _answer_spec(cache: CycleInputs, pods: Mapping[str, PodRecord], key: str, spec: Json, now_ns: int) -> Json:
    if spec.get("questionObjectTemplate"):
        pod = _from_template(key, spec["questionObjectTemplate"])
        return _evaluated(cache, pod, pod.metadata.key, pod.metadata.uid, now_ns)
    pod_name = str(spec.get("questionObjectKey") or "")
    if not pod_name:
        raise BadQuery("give spec.questionObjectKey, as namespace/pod, or spec.questionObjectTemplate")
    pod_record = pods.get(pod_name)
    if pod_record is None:
        raise BadQuery(f"there is no pod {pod_name}; gangs and jobs are not part of this release")
    return _of_pod(cache, pod_record, now_ns)


def _of_pod(cache: CycleInputs, pod_record: PodRecord, now_ns: int) -> Json:
    assignment = pod_record.assignment()
    if assignment is not None:
        return _explained([_result(pod_record.name, pod_record.uid, assignment.node)], "", [])
    if pod_record.ended:
        raise BadQuery(f"pod {pod_record.name} has ended")
    if pod_record.pod_class is None or pod_record.pod_class.fault:
        raise BadQuery(
            f"pod {pod_record.name}: {pod_record.pod_class.fault if pod_record.pod_class else 'it has not been read yet'}"
        )
    if pod_record.pod_class.gated:
        raise BadQuery(text("SchedulingGated"))
    return _evaluated(cache, pod_record, pod_record.name, pod_record.uid, now_ns)


def _evaluated(cache: CycleInputs, pod: Pod | PodRecord, name: str, uid: str, now_ns: int) -> Json:
    query = EvaluationQuery(cache, pod, now_ns)
    evaluation, names = query.evaluation, cache.table.names
    row = evaluation.choose(name_hash(uid))
    refused: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for number in range(cache.table.size):
        if evaluation.by[number] > FEASIBLE:
            reasons, is_unresolvable = query.rejection(names[number])
            refused[evaluation.profile.filters[int(evaluation.by[number])].name, reasons, not is_unresolvable].append(
                names[number]
            )
    details = [
        {
            "failedPlugin": plugin,
            "reason": reasons,
            "preemptMightHelp": helps,
            "failedNodes": sorted(nodes)[:MAX_NODES_PER_REASON],
        }
        for (plugin, reasons, helps), nodes in sorted(refused.items())
    ]
    results = [_result(name, uid, names[row])] if row >= 0 else []
    failed = "" if results else message(evaluation.record(name_hash(uid)), REGISTRY.texts)
    return _explained(results, failed, details)


def _explained(results: list[Json], failed: str, details: list[Json]) -> Json:
    able = bool(results)
    after = able or any(detail["preemptMightHelp"] for detail in details)
    attempt = {
        "schedulable": able,
        "failedMessage": failed,
        "feasibleSchedulingResult": results,
        "nodeFailedDetails": details,
    }
    domain = {"topologyDomain": "", "schedulable": able, "failedMessage": failed, "scheduleExplanation": attempt}
    return {
        "schedulable": able,
        "schedulableAfterPreemption": after,
        "failedMessage": failed,
        "detailedExplanation": [{**domain, "schedulableAfterPreemption": after}],
    }


def _result(pod: str, uid: str, node: str) -> Json:
    namespace, _, name = pod.rpartition("/")
    return {"namespace": namespace, "name": name, "uid": uid, "nodeName": node}


def _from_template(key: str, template: Any) -> Pod:
    try:
        pod = msgspec.convert(template, Pod)
    except msgspec.ValidationError as error:
        raise BadQuery(f"spec.questionObjectTemplate: {error}") from error
    if pod.spec == PodSpec():
        raise BadQuery("spec.questionObjectTemplate has no spec; give a pod template, with metadata and spec")
    namespace, _, name = key.partition("/")
    metadata = msgspec.structs.replace(pod.metadata, namespace=namespace, name=name, uid=key)
    return msgspec.structs.replace(pod, metadata=metadata)
