"""Settings of metrics ingest: `KOORD_METRICS_INGEST_<FIELD>`; `koord run metrics-ingest --help` prints this table."""

from typing import Annotated

from msgspec import Meta

from services.metrics_ingest.agent_reports.aggregation_policy import LEAST_INTERVAL_S
from shared.settings import Settings


class IngestSettings(Settings, frozen=True, kw_only=True):
    """Bounds of accepted reports, and how NodeMetrics are written."""

    max_clock_skew_s: Annotated[float, Meta(ge=0, description="seconds a report may lie ahead of our clock")] = 30
    min_interval_s: Annotated[
        int, Meta(ge=1, description="a NodeMetric's report interval counts as at least this many seconds")
    ] = LEAST_INTERVAL_S
    node_metrics: Annotated[bool, Meta(description="write NodeMetric objects; reports are recorded either way")] = True
    node_metric_interval_s: Annotated[
        int,
        Meta(ge=0, description="write a node's NodeMetric at most this often; 0: with each report that is recorded"),
    ] = 0
    refused_pause_s: Annotated[
        int, Meta(ge=0, description="after a refused write of a NodeMetric, the next is tried this many seconds later")
    ] = 600
    stale_after_s: Annotated[
        int, Meta(ge=1, description="a node without a report for this long counts as silent; three report intervals")
    ] = 180
    max_history_s: Annotated[
        int, Meta(ge=0, description="seconds back to which reports of an agent that had no connection are recorded")
    ] = 604_800
    client: Annotated[str, Meta(description="MQTT client id; the service's name when empty")] = ""
