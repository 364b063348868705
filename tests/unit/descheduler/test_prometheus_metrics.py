"""Evictions of PodMigrationJobs are counted when they are carried out, under upstream's name."""

from prometheus_client import CollectorRegistry, generate_latest

from services.descheduler.migration.pod_migration_job import EVICT_TRIGGER
from services.descheduler.prometheus_metrics import DeschedulerMetrics
from shared.events import Cause, Event, RecordedEvent
from shared.events.intents import EvictionRequested
from shared.kube.resource_names import MIGRATION_JOBS
from tests.support.migration import migration_args
from tests.support.migration_world import World


class CountedWorld(World):
    """A world whose events are counted before they are folded."""

    def __init__(self) -> None:
        super().__init__(migration_args(evictQPS=100))
        self.registry = CollectorRegistry()
        self.metrics = DeschedulerMetrics(self.registry)

    def append(self, context: str, event: Event, cause: int = 0) -> RecordedEvent:
        """Counts an event, and appends it."""
        seq = len(self.logs[context]) + 1
        known = RecordedEvent(context, seq, event, self.now_ns, Cause("descheduling", cause) if cause else None)
        self.metrics.evicted.count(known, self.state)
        return super().append(context, event, cause)

    def series(self) -> list[str]:
        """Returns the samples of the metric, as Prometheus reads them."""
        lines = generate_latest(self.registry).decode().splitlines()
        return [line for line in lines if line.startswith("descheduler_pods_evicted")]


def test_each_attempt_counts_with_its_result_trigger_namespace_and_node() -> None:
    world = CountedWorld()
    world.workload("web", 10)
    world.request("j", "web-3", mode="EvictDirectly")
    body = world.objects[MIGRATION_JOBS, "j"]
    body["metadata"]["annotations"] = {EVICT_TRIGGER: "LowNodeLoad"}
    world.put(MIGRATION_JOBS, "j", body)
    for _ in range(6):
        if any(isinstance(event, EvictionRequested) for event in world.decide()):
            break
        world.gateway()
    world.gateway(refuse="its disruption budget")
    world.pass_time(5)
    world.decide()
    assert world.series() == [
        'descheduler_pods_evicted{namespace="default",node="n3",result="error",strategy="LowNodeLoad"} 1.0'
    ]
    body["metadata"]["annotations"] = {EVICT_TRIGGER: "any text of a client"}
    world.put(MIGRATION_JOBS, "j", body)
    world.gateway()
    assert world.series()[-1] == (
        'descheduler_pods_evicted{namespace="default",node="n3",result="success",strategy="other"} 1.0'
    )
