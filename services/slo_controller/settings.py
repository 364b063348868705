"""The settings of the SLO controller: `KOORD_SLO_CONTROLLER_<FIELD>`; `koord run slo-controller --help` prints this table."""

from typing import Annotated

from msgspec import Meta

from shared.settings import Settings


class SloSettings(Settings, frozen=True, kw_only=True):
    """Objects to write, and intervals."""

    poll_interval_s: Annotated[
        float, Meta(gt=0, description="seconds between two searches for nodes whose reports have expired")
    ] = 5.0
    debounce_s: Annotated[
        float,
        Meta(ge=0, description="without a full listing of the cluster, nothing is decided for this long after a start"),
    ] = 5.0
    silent_after_s: Annotated[
        float, Meta(gt=0, description="a node is silent when its report is older; counts for outage_percent")
    ] = 180.0
    outage_percent: Annotated[
        int, Meta(ge=1, le=100, description="share of silent nodes at which overcommitment freezes: an outage of ours")
    ] = 30
    outage_min_nodes: Annotated[
        int, Meta(ge=1, description="fewer silent nodes than this are never an outage of ours")
    ] = 3
    node_slos: Annotated[bool, Meta(description="write NodeSLO objects")] = True
    node_metrics: Annotated[bool, Meta(description="write the spec of NodeMetric objects")] = True
    topologies: Annotated[
        bool, Meta(description="write NodeResourceTopologies: reports of agents, and batch resources of NUMA zones")
    ] = True
    node_series: Annotated[
        int, Meta(ge=0, description="with more nodes than this, Prometheus gets no series of single nodes")
    ] = 2000
    shared_gpus: Annotated[
        bool,
        Meta(
            description="count koordinator.sh/gpu.shared, 100 for each healthy GPU: the webhook adds it to pods with GPUs"
        ),
    ] = True
