"""Decides on reports: which are rejected, which are recorded, and which NodeMetric writes follow.

Pure: State, window usages and `now` in, events out.
"""

from collections.abc import Iterable, Iterator

import msgspec

from services.metrics_ingest.agent_reports.aggregation_policy import Policy
from services.metrics_ingest.agent_reports.metrics_ingest_state import ReportIngestState
from services.metrics_ingest.agent_reports.settings import IngestSettings
from services.metrics_ingest.agent_reports.usage_windows import AggregatedUsage
from shared.agents.report import BadReport, Report
from shared.events import Draft
from shared.events.intents import ObjectDesired
from shared.events.metrics import ClassReported, GpuReported, NodeReported, NodeReportsExpired, PodReported, Usage
from shared.kube.instants import SECOND, instant_text
from shared.kube.resource_names import NODE_METRICS


def check_time(report: Report, policy: Policy, settings: IngestSettings, now_ns: int) -> None:
    """Rejects a report whose time is ahead of our clock, or before every window.

    Raises:
        BadReport: names the time and what to do.
    """
    late_ns = now_ns - report.at_ns
    if -late_ns > settings.max_clock_skew_s * SECOND:
        raise BadReport(
            report.node,
            "at_ns",
            f"{instant_text(report.at_ns)} lies {-late_ns // SECOND} s ahead of our clock, and {settings.max_clock_skew_s:g} s are "
            "allowed; set the node's clock",
        )
    if late_ns > policy.longest_s * SECOND:
        raise BadReport(
            report.node,
            "at_ns",
            f"{instant_text(report.at_ns)} lies {late_ns // SECOND} s back, before every window ({policy.longest_s} s)",
        )


def is_due(state: ReportIngestState, report: Report, policy: Policy) -> bool:
    """Reports whether a report is to be recorded: the first of its node, or one a report interval after the last one.

    Half of the agent's own interval is allowed for, so that an agent with the same interval never misses its turn.
    """
    if report.node not in state.nodes:
        return False
    last_ns = state.last_recorded_ns.get(report.node)
    return last_ns is None or report.at_ns + report.interval_ns // 2 >= last_ns + policy.interval_s * SECOND


def node_reported(state: ReportIngestState, aggregated: AggregatedUsage, policy: Policy) -> NodeReported:
    """Returns the NodeReported of a node: usages over its windows, by the pods that were on it at the report's time."""
    classes: dict[tuple[str, str], list[PodReported]] = {}
    unmatched: Usage | None = None
    known_pods, node, at_ns, extra = state.known_pods, aggregated.node, aggregated.at_ns, aggregated.extra
    for uid, usage in aggregated.pods.items():
        pod_on_node = known_pods.get(uid)
        if pod_on_node is None:
            unmatched = _sum(unmatched, usage)
        elif pod_on_node.node == node and not 0 < pod_on_node.gone_ns <= at_ns:
            pods = classes.setdefault((pod_on_node.priority, pod_on_node.qos), [])
            pods.append(PodReported(pod_on_node.pod, usage.cpu_milli, usage.memory))
    return NodeReported(
        node=node,
        at_ns=at_ns,
        interval_s=policy.interval_s,
        aggregate_s=policy.aggregate_s,
        usage=aggregated.usage,
        system=aggregated.system,
        best_effort=aggregated.best_effort,
        windows=aggregated.windows,
        pods=tuple(
            ClassReported(*class_, tuple(sorted(classes[class_], key=lambda pod: pod.pod)))
            for class_ in sorted(classes)
        ),
        unmatched=unmatched,
        applications=extra.applications,
        reclaimable=extra.reclaimable,
        peak=extra.peak,
        zones=extra.zones,
        gpus=tuple(_gpus(state, aggregated)),
    )


def _gpus(state: ReportIngestState, aggregated: AggregatedUsage) -> Iterator[GpuReported]:
    """Yields the GPUs of the node, then those of the pods that were there at the report's time."""
    for gpu in aggregated.extra.gpus:
        if not gpu.pod:
            yield gpu
        elif (pod := _pod_at_report_time(state, aggregated, gpu.pod)) is not None:
            yield msgspec.structs.replace(gpu, pod=pod)


def _pod_at_report_time(state: ReportIngestState, aggregated: AggregatedUsage, uid: str) -> str | None:
    """Returns `namespace/name` of a pod that was on the node at the report's time."""
    pod_on_node = state.known_pods.get(uid)
    there = (
        pod_on_node is not None
        and pod_on_node.node == aggregated.node
        and not 0 < pod_on_node.gone_ns <= aggregated.at_ns
    )
    return pod_on_node.pod if pod_on_node is not None and there else None


def report_drafts(state: ReportIngestState, report: NodeReported, settings: IngestSettings, now_ns: int) -> list[Draft]:
    """Returns the report, behind the creation of its node's NodeMetric where that is missing.

    Where the NodeMetric's status is due, the report itself is that desired status. It is not for a while after a
    rejected write.

    The object is created without a spec: defaults hold until a user sets one, and ingest never overwrites it.
    """
    if not _is_status_due(state, report, settings, now_ns):
        return [Draft(report)]
    drafts = [Draft(msgspec.structs.replace(report, status_desired=True))]
    if report.node not in state.specs:
        drafts.insert(0, Draft(ObjectDesired(resource=NODE_METRICS, name=report.node, body={})))
    return drafts


def _is_status_due(state: ReportIngestState, report: NodeReported, settings: IngestSettings, now_ns: int) -> bool:
    node = report.node
    if not settings.node_metrics or now_ns < state.refused.get(node, -(2**63)) + settings.refused_pause_s * SECOND:
        return False
    if node not in state.specs:
        return True
    # A rejected write is tried again after its pause, whatever the interval between writes.
    desired_ns = 0 if node in state.refused else state.status_desired_ns.get(node, 0)
    return report.at_ns >= max(state.status_observed_ns[node], desired_ns) + settings.node_metric_interval_s * SECOND


def expired_reports(state: ReportIngestState, silent: Iterable[str]) -> list[Draft]:
    """Returns the expiry of reports, and the deletion of the NodeMetric, of silent nodes that left the cluster."""
    drafts = []
    for node in silent:
        at_ns = state.last_recorded_ns.get(node)
        if node in state.nodes or at_ns is None:
            continue
        drafts.append(Draft(NodeReportsExpired(node=node, at_ns=at_ns)))
        if node in state.specs:
            drafts.append(Draft(ObjectDesired(resource=NODE_METRICS, name=node, body=None)))
    return drafts


def _sum(total: Usage | None, usage: Usage) -> Usage:
    total = total or Usage(0, 0)
    return Usage((total.cpu_milli or 0) + (usage.cpu_milli or 0), (total.memory or 0) + (usage.memory or 0))
