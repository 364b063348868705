"""Usage reports that cannot be true: recorded when that begins, changes or ends, with a Kubernetes Event on the node.

The scheduler and the overcommitment count such a report as expired; nothing else would show that it is ignored.
Source of the rule: shared/domain/usage_plausibility.py.
"""

from hashlib import sha256

from services.slo_controller.service_manifest import COMPONENT, REPORT_EVENTS
from services.slo_controller.state.slo_state import SloState
from shared.domain.desired_kubernetes_event import event_intent
from shared.events import Draft
from shared.events.intents import ObjectDesired
from shared.events.slo import IgnoredReport, NodeReportsBelieved, NodeReportsIgnored
from shared.kube.instants import SECOND, instant_text
from shared.kube.resource_names import KUBERNETES_EVENTS


def decide_ignored_reports(state: SloState, name: str, now_ns: int) -> list[Draft]:
    """Compares a node's newest reports with what is recorded; nothing while only their amounts change."""
    before = state.ignored.get(name)
    if name not in state.nodes:
        if before is None:
            return []
        deletion = ObjectDesired(resource=KUBERNETES_EVENTS, name=event_key(name), body=None)
        return [Draft(NodeReportsBelieved(name, before.since_ns)), Draft(deletion)]
    faults = state.report_faults(name)
    if _kinds(faults) == _kinds(before.faults if before else ()):
        return []
    uid = state.nodes[name].metadata.uid
    if not faults:
        assert before is not None
        since = instant_text(before.since_ns // SECOND * SECOND)
        message = f"usage reports about the node are believed again; they were ignored since {since}"
        ended = _event(name, uid, "UsageReportsBelieved", message, "Normal", now_ns)
        return [Draft(NodeReportsBelieved(name, before.since_ns)), Draft(ended)]
    reasons = "; ".join(f"{fault.source}: {fault.what}" for fault in faults)
    message = f"usage reports that cannot be true are ignored and count as expired: {reasons}"
    began = _event(name, uid, "UsageReportsIgnored", message, "Warning", now_ns)
    return [Draft(NodeReportsIgnored(name, faults, before.since_ns if before else now_ns)), Draft(began)]


def event_key(node: str) -> str:
    """Returns `namespace/name` of the Event about a node's reports, which is the same for all of them."""
    return REPORT_EVENTS.removesuffix("*") + sha256(node.encode()).hexdigest()[:16]


def _kinds(faults: tuple[IgnoredReport, ...]) -> set[tuple[str, str]]:
    return {(fault.source, fault.kind) for fault in faults}


def _event(node: str, uid: str, reason: str, message: str, type_: str, now_ns: int) -> ObjectDesired:
    about = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return event_intent(
        event_key(node), about, reason=reason, message=message, component=COMPONENT, now_ns=now_ns, type_=type_
    )
