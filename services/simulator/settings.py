"""The simulator's settings."""

from typing import Annotated

from msgspec import Meta

from services.simulator.kubelet.pod_lifecycle import PodTimings
from shared.settings import Settings


class SimulatorSettings(Settings, frozen=True, kw_only=True):
    """`KOORD_SIMULATOR_<FIELD>` in the environment."""

    seed: Annotated[int, Meta(ge=0, description="uids, loads and the generated pods follow from it")] = 1
    speed: Annotated[float, Meta(gt=0, description="simulated seconds per second of wall time")] = 1.0
    virtual: Annotated[bool, Meta(description="jump to the next timer as soon as nothing is left to do")] = False
    debounce_s: Annotated[float, Meta(gt=0, description="virtual time: idle seconds before a jump")] = 0.2

    start_delay_s: Annotated[float, Meta(ge=0, description="from a pod's binding to Running")] = 1.0
    stop_delay_s: Annotated[float, Meta(ge=0, description="from a running pod's deletion to its end, at most")] = 2.0
    keep_ended_s: Annotated[float, Meta(ge=0, description="how long an ended pod stays; 0: until it is deleted")] = (
        600.0
    )

    report_interval_s: Annotated[int, Meta(ge=0, description="between two NodeMetric reports of a node; 0: none")] = 60
    average_s: Annotated[
        int, Meta(ge=15, description="averaging window of the usage in a report, percentiles aside")
    ] = 60

    nodes: Annotated[int, Meta(ge=0, description="nodes of a new cluster; `koord up` makes 10")] = 0
    node_cpu: Annotated[int, Meta(ge=1, description="cores of each")] = 32
    node_memory_gib: Annotated[int, Meta(ge=1, description="memory of each")] = 256
    node_pods: Annotated[int, Meta(ge=1, description="pods that fit on each")] = 110
    hot_percent: Annotated[int, Meta(ge=0, le=100, description="share of the nodes with much load outside of pods")] = (
        20
    )
    batch_capacity_percent: Annotated[
        int, Meta(ge=0, le=100, description="batch-cpu and batch-memory of each node, as a share of its capacity")
    ] = 0

    pods: Annotated[int, Meta(ge=0, description="pods that are created in a new cluster")] = 0
    pods_after_s: Annotated[float, Meta(ge=0, description="seconds until the first of them")] = 2.0
    pods_per_s: Annotated[float, Meta(ge=0, description="pods created a second; 0: all at once")] = 0.0
    batch_percent: Annotated[
        int, Meta(ge=0, le=100, description="share of them that is batch work; the rest is LS")
    ] = 50
    pods_run_s: Annotated[int, Meta(ge=0, description="mean time that a batch pod runs; 0: for ever")] = 0
    scheduler_name: Annotated[str, Meta(description="schedulerName of the generated pods")] = "koord-scheduler"

    @property
    def timings(self) -> PodTimings:
        """Delays of the start, the stop and the removal of pods."""
        return PodTimings(self.start_delay_s, self.stop_delay_s, self.keep_ended_s)
