"""LowNodeLoad as a plugin of a cycle: its records are the anomaly detectors of nodes, and the nodes that no pod leaves."""

from collections.abc import Mapping

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.load_aware.anomaly_detector import Counts, Detector
from services.descheduler.load_aware.arguments import LowNodeLoadArgs
from services.descheduler.load_aware.balance import BalanceResult, PoolResult, balance
from services.descheduler.load_aware.classification import NodeClass
from services.descheduler.load_aware.measured_node import Amounts
from services.descheduler.load_aware.predicted_peaks import at_predicted_peaks
from services.descheduler.load_aware.unrelieved_nodes import unrelieved_nodes
from services.descheduler.state.detector_records import NO_RECORDS, DetectorRecords
from shared.events.descheduling import AnomaliesObserved, Cause, DetectorRecord


def low_node_load(context: CycleContext) -> Findings:
    """Runs the plugin once."""
    args: LowNodeLoadArgs = context.args
    records: DetectorRecords = context.records or NO_RECORDS
    before = {name: _detector(each) for name, each in records.node.items()}
    prod_before = {name: _detector(each) for name, each in records.prod.items()}
    nodes = at_predicted_peaks(context.nodes) if args.predicted_peaks else context.nodes
    result = balance(args, nodes, (before, prod_before), context.evictor, context.now_ns)
    if args.paused:
        return Findings()
    unrelieved = unrelieved_nodes(args, result, context.evictor)
    now = AnomaliesObserved(
        of=context.of,
        node=_records(result.detectors),
        prod=_records(result.prod_detectors),
        unrelieved=unrelieved.reasons,
        unrelieved_others=unrelieved.others,
    )
    is_changed = (before, prod_before, records.unrelieved) != (
        result.detectors,
        result.prod_detectors,
        now.unrelieved,
    )
    measured = {node.name: node.total for node in context.nodes} if args.predicted_peaks else {}
    causes = tuple(cause for pool in result.pools for cause in _causes(pool, measured))
    return Findings(causes, _sources(result), (now,) if is_changed else ())


def _causes(pool: PoolResult, measured: Mapping[str, Amounts]) -> list[Cause]:
    """Returns the overloads of the sources of a pool: those alone from which pods were considered.

    Args:
        measured: node -> its measured usage, where the pool has that at predicted peaks.
    """
    found = pool.classified
    if found is None:
        return []
    rows = {node.name: row for row, node in enumerate(found.nodes)}
    causes = []
    for overload in pool.overloads:
        for resource, used in overload.usage.items():
            capacity = int(found.capacity[rows[overload.node], found.resources.index(resource)])
            scope = "prod" if overload.prod else "node"
            limit = overload.limits[resource]
            as_measured = {} if overload.prod else measured.get(overload.node, {})
            before = as_measured.get(resource, used)
            predicted = used if before != used else 0
            causes.append(Cause(overload.node, scope, resource, before, limit, capacity, predicted))
    return causes


def _sources(result: BalanceResult) -> tuple[str, ...]:
    """Returns all nodes of a high class, anomalous or not: none of them takes pods of others."""
    high = (NodeClass.HIGH, NodeClass.PROD_HIGH)
    return tuple(
        sorted(
            {
                node.name
                for pool in result.pools
                if pool.classified is not None
                for node, found in zip(pool.classified.nodes, pool.classified.classes, strict=True)
                if found in high
            }
        )
    )


def _records(detectors: Mapping[str, Detector]) -> dict[str, DetectorRecord]:
    return {name: _record(each) for name, each in sorted(detectors.items())}


def _record(each: Detector) -> DetectorRecord:
    counts = each.counts
    return DetectorRecord(
        each.timeout_ns,
        each.abnormalities,
        each.normalities,
        each.is_anomalous,
        (counts.total, counts.normal, counts.abnormal, counts.normal_in_a_row, counts.abnormal_in_a_row),
        each.expires_ns,
        each.used_ns,
    )


def _detector(record: DetectorRecord) -> Detector:
    return Detector(
        record.timeout_ns,
        record.abnormalities,
        record.normalities,
        record.is_anomalous,
        Counts(*record.counts),
        record.expires_ns,
        record.used_ns,
    )
