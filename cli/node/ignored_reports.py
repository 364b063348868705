"""Usage reports about a node that are ignored since they cannot be true: what is wrong, since when, what to do."""

from datetime import datetime

from shared.events.slo import NodeReportsBelieved, NodeReportsIgnored
from shared.kube.instants import SECOND, instant_text
from shared.log.admin.newest_events import newest
from shared.log.codec import Codec
from shared.log.reader import LogReader, read_record

CONTEXT = "slo"


async def ignored_reports_of(log: LogReader, node: str, at: datetime | None = None) -> NodeReportsIgnored | None:
    """Returns what is ignored of a node's reports, now or at an instant; None where all are believed."""
    kinds = (NodeReportsIgnored, NodeReportsBelieved)
    if at is None:
        found = [one.record.event for one in await newest(log.database, CONTEXT, kinds, key=node)]
    else:
        rows = [row for kind in kinds async for row in log.rows(context=CONTEXT, kind=kind.__name__, key=node)]
        last = max((row for row in rows if row.at <= at), key=lambda row: row.seq, default=None)
        found = [record.event] if last and (record := read_record(last, Codec(kinds))) else []
    return found[0] if found and isinstance(found[0], NodeReportsIgnored) else None


def describe_ignored(event: NodeReportsIgnored) -> str:
    """Returns one sentence: the node, since when, what is wrong with the reports."""
    since = instant_text(event.since_ns // SECOND * SECOND)
    reasons = "; ".join(f"{fault.source}: {fault.what}" for fault in event.faults)
    return f"usage reports about {event.node} cannot be true and are ignored since {since}: {reasons}"


def remedy_of(event: NodeReportsIgnored, *, simulated: bool) -> str:
    """Returns what to do about it."""
    remedies = []
    written = any(fault.source == "NodeMetric" for fault in event.faults)
    if written and simulated:
        remedies.append(f"delete the NodeMetric, and the node reports anew: `koord dev delete nodemetric {event.node}`")
    elif written:
        command = f"`kubectl get nodemetric {event.node} -o yaml --show-managed-fields`"
        remedies.append(f"see who writes the NodeMetric: {command}, and correct that client or its clock")
    if any(fault.source == "metrics" for fault in event.faults):
        remedies.append("see the node agent there: its counters, and who else has its login")
    return "; ".join(remedies)
