"""Decides on pods that neighbours slow down: records them, requests a migration, and marks their nodes. Pure.

The answer `suppress` is the agent's own. For `migrate` the first suspect gets a PodMigrationJob, which the descheduler
arbitrates like any other; for `hint` the node has the label INTERFERED while a pod on it is slowed down.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from services.metrics_ingest.agent_actions.node_pods_and_actions_state import ActionIngestState
from services.metrics_ingest.agent_actions.pod_of_action import pod_of
from shared.agents.actions import ActionReport, BadAction, Interfered
from shared.domain.interference import FIELDS, HINT, INTERFERED, JOB_PREFIX, JOB_TTL, MIGRATE
from shared.domain.qos import QoS, qos
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.nodes import DeviatingSignal, InterferenceSuspect, PodInterfered, PodInterferenceEnded
from shared.kube.pod import Pod
from shared.kube.resource_names import MIGRATION_JOBS


def interfered_events(
    state: ActionIngestState, report: ActionReport, found: Interfered, fields: dict[str, Any]
) -> list[Draft]:
    """Returns the event of a pod that is slowed down, and the intent of a job for its first suspect.

    Args:
        fields: of every event of this report.

    Raises:
        BadAction: the pod or a suspect runs on another node, or the pod is its own suspect.
    """
    pod = pod_of(state, report, found.pod_uid)
    suspects = tuple(_suspects(state, report, found))
    done, job = found.done, None
    if found.answer == MIGRATE:
        reason = why_not_migrated(state, report.node, suspects[0])
        done = f"{suspects[0].pod or suspects[0].pod_uid} is not migrated: {reason}" if reason else done
        job = None if reason else _job(report.node, pod.pod if pod else found.pod_uid, suspects[0])
    elif found.answer == HINT:
        done = f"the node has the label {INTERFERED}"
    event = PodInterfered(
        **fields,
        pod_uid=found.pod_uid,
        since_ns=found.since_ns,
        deviations=tuple(
            DeviatingSignal(each.signal, each.value, each.baseline, each.limit) for each in found.deviations
        ),
        suspects=suspects,
        answer=found.answer,
        done=done,
        job=job.name if job is not None else "",
        pod=pod.pod if pod else "",
    )
    drafts = [Draft(event, correlation=found.pod_uid)]
    return drafts if job is None else [*drafts, Draft(job, correlation=found.pod_uid)]


def _suspects(state: ActionIngestState, report: ActionReport, found: Interfered) -> Iterator[InterferenceSuspect]:
    for each in found.suspects:
        place = f"action.suspects[{each.pod_uid}]"
        if each.pod_uid == found.pod_uid:
            raise BadAction(report.node, place, "is the pod itself")
        suspect = pod_of(state, report, each.pod_uid, place)
        yield InterferenceSuspect(
            pod_uid=each.pod_uid,
            correlation_percent=each.correlation_percent,
            signal=each.signal,
            activity=each.activity,
            value=each.value,
            pod=suspect.pod if suspect else "",
        )


def why_not_migrated(state: ActionIngestState, node: str, suspect: InterferenceSuspect) -> str:
    """Returns why no PodMigrationJob is made for a suspect; empty when one is. An agent is not believed in this."""
    there = state.pods.get(suspect.pod_uid)
    view = state.node_views.get(node)
    text = view.pods.get(suspect.pod_uid) if view is not None else None
    if there is None or text is None:
        return "it does not run on the node any more"
    if there.static:
        return "it is a static pod"
    if qos(_POD.decode(text)) is not QoS.BE:
        return "it is not best effort"
    return ""


def _job(node: str, slowed: str, suspect: InterferenceSuspect) -> ObjectDesired:
    """Returns the intent of a job. It has the pod's uid in its name, so a pod gets one job at most."""
    namespace, _, name = suspect.pod.partition("/")
    reason = f"it slows down {slowed} on {node}: {suspect.signal}, correlation {suspect.correlation_percent} %"
    return ObjectDesired(
        resource=MIGRATION_JOBS,
        name=f"{JOB_PREFIX}{suspect.pod_uid}",
        body={
            "metadata": {"annotations": {"koordinator.sh/evict-reason": reason}},
            "spec": {"podRef": {"namespace": namespace, "name": name, "uid": suspect.pod_uid}, "ttl": JOB_TTL},
        },
    )


def ended_events(
    state: ActionIngestState, report: ActionReport, uid: str, reason: str, fields: dict[str, Any]
) -> list[Draft]:
    """Returns the end of a pod's interference.

    Raises:
        BadAction: the pod runs on another node.
    """
    pod = pod_of(state, report, uid)
    mark = state.interfered.get(report.node, {}).get(uid)
    name = pod.pod if pod else mark.pod if mark else ""
    ended = PodInterferenceEnded(**fields, pod_uid=uid, pod=name, reason=reason)
    return [Draft(ended, correlation=uid)]


def interference_differences(state: ActionIngestState, now_ns: int) -> list[Draft]:
    """Returns the ends of marks whose pods are gone, also where no agent reports them, and changed labels of nodes."""
    drafts = [
        Draft(
            PodInterferenceEnded(node=node, boot="", number=0, at_ns=now_ns, pod_uid=uid, reason="gone", pod=mark.pod),
            correlation=uid,
        )
        for node, marks in sorted(state.interfered.items())
        for uid, mark in sorted(marks.items())
        if uid not in state.pods
    ]
    ended = {draft.correlation for draft in drafts}
    hinted = {
        node
        for node, marks in state.interfered.items()
        if state.has_node(node) and any(mark.hint and uid not in ended for uid, mark in marks.items())
    }
    for node in sorted(hinted ^ {node for node in state.hinted if state.has_node(node)}):
        label = "true" if node in hinted else None
        patch = {"metadata": {"labels": {INTERFERED: label}}}
        drafts.append(Draft(FieldsDesired(resource="nodes", name=node, fields=FIELDS, patch=patch)))
    return drafts


_POD = msgspec.json.Decoder(Pod)
