"""`koord describe pod`: what the log has about a pod."""

import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from cli.commands.why_pod import explain_pod
from cli.describe.describe_command import describe_command
from cli.describe.description import Description, Table, Value
from cli.scheduling.recorded_state import scheduler_state
from cli.scheduling.waiting_answers import below_heading, pending_in, queue_place
from cli.terminal import name_completion
from cli.terminal.amounts import human_amounts
from cli.terminal.durations import instant_of
from services.scheduler.explain.explanation_text import Explanation
from services.scheduler.explain.waiting_order_config import rules_in_force
from services.scheduler.explain.waiting_pods import waiting_pods
from services.scheduler.state.quota_headroom import Entry
from shared.domain.qos import QoS, qos
from shared.domain.resource_status import ResourceStatus
from shared.events.cluster import PodObserved
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.json_text import read_json
from shared.kube.pod import Pod
from shared.kube.system_annotations import RESOURCE_STATUS
from shared.log.admin.newest_events import newest
from shared.log.reader import LogReader

LAST_STEPS = 15


async def describe(log: LogReader, name: str) -> Description:
    """Describes the newest pod of a name.

    Raises:
        UnknownPod: the log has no event about it.
    """
    view = await scheduler_state(log)
    explanation = await explain_pod(log, name, view=view)
    record = view.pods.get(explanation.pod_uid)
    pod = await _object(log, name)
    found: dict[str, Value] = {
        "Name": name.partition("/")[2],
        "Namespace": name.partition("/")[0],
        "UID": explanation.pod_uid,
        "Status": f"{explanation.status}: {explanation.summary}",
        "Node": explanation.node,
    }
    found |= {
        title: faults for title, faults in (("Ignored", explanation.ignored), ("Check", explanation.mistakes)) if faults
    }
    if pod is not None:
        found |= _facts(pod)
    if record is not None and record.pod_class is not None:
        found["Requests"] = human_amounts(record.pod_class.request)
        found["Quota"] = _quota(view.quota.pods.get(record.uid), pod)
        found["Gang"] = view.gangs.gang_of.get(record.uid, "")
        waiting = [each for each in waiting_pods(view, rules_in_force(view), time.time_ns()) if each.record is record]
        for each in await pending_in(log, view, waiting):
            found["Waits for"] = below_heading(each.waits_for)
            found["Since"] = each.since
            found["Place"] = queue_place(each.place)
            found["Attempts"] = f"{each.attempts}" + (f", next {each.next_attempt}" if each.next_attempt else "")
    if pod is not None:
        rows = [(one.type, one.status, one.reason or "-", one.message or "-") for one in pod.status.conditions]
        found["Conditions"] = Table(("type", "status", "reason", "message"), rows)
    return {**found, **_decision(explanation)}


def _facts(pod: Pod) -> Mapping[str, Value]:
    metadata, spec = pod.metadata, pod.spec
    return {
        "Created": metadata.creation_timestamp or "",
        "Labels": [f"{key}={value}" for key, value in sorted((metadata.labels or {}).items())],
        "Controller": [f"{owner.kind}/{owner.name}" for owner in metadata.owner_references],
        "Scheduler": spec.scheduler_name,
        "Priority": str(spec.priority or 0),
        "QoS": qos(pod).value,
        **_cpus(pod),
    }


def _cpus(pod: Pod) -> Mapping[str, Value]:
    """Returns the CPUs that a pod has for itself; of a pod that should have some and has none, that it shares others."""
    text = (pod.metadata.annotations or {}).get(RESOURCE_STATUS, "")
    with suppress(msgspec.MsgspecError):
        if text and (cpus := read_json(text, ResourceStatus).cpuset):
            return {"CPUs": cpus}
    if qos(pod) not in (QoS.LSE, QoS.LSR) or not pod.spec.node_name:
        return {}
    reason = (
        f"those of {pod.spec.node_name} were not reported when it was placed, or it requests no whole number of them"
    )
    return {"CPUs": f"none of its own: {reason}"}


def _decision(explanation: Explanation) -> Mapping[str, Value]:
    found: dict[str, Value] = {}
    if (evaluation := explanation.evaluation) is not None:
        passed = f"{evaluation.feasible} of {evaluation.nodes} nodes passed every filter"
        found["Last cycle"] = f"{evaluation.event} at {instant_of(evaluation.now_ns)}: {passed}"
        refused = [(one.plugin, str(one.nodes), one.text) for one in evaluation.rejected]
        if refused:
            found["Rejected"] = Table(("plugin", "nodes", "reason"), refused, right=("nodes",))
        best = [(one.node, str(one.score)) for one in evaluation.best]
        if best:
            found["Best nodes"] = Table(("node", "score"), best, right=("score",))
    steps = [(instant_of(one.at_ns), one.event, one.text) for one in explanation.steps[-LAST_STEPS:]]
    return {**found, "Events": Table(("at", "event", "what"), steps)}


def _quota(entry: Entry | None, pod: Pod | None) -> str:
    """Returns the quota in which a pod counts; another one that its label names is rejected, or does not exist."""
    if entry is None:
        return ""
    label = ((pod.metadata.labels if pod is not None else None) or {}).get(QUOTA_NAME, entry.quota)
    other = f"; its label names {label}, which is not in force: `koord explain pod`" if label != entry.quota else ""
    return f"{entry.quota}, {'charged' if entry.charged else 'not charged'}{other}"


async def _object(log: LogReader, name: str) -> Pod | None:
    for found in await newest(log.database, "cluster", [PodObserved], key=name):
        if isinstance(found.record.event, PodObserved):
            return found.record.event.object
    return None


command = describe_command(
    describe,
    "Show a pod: requests, quota, gang, where it is or what it waits for, and its last events.",
    is_namespaced=True,
    complete=name_completion.pods,
)
