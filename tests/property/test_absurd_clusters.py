"""With any content of nodes, pods and reports, and any clocks, the scheduler goes on and decides from what it can read.

Every text here passes the API server for some object: amounts in annotations and custom resources are checked by
nobody.
"""

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import BUDGETS, NODE_TOPOLOGIES
from shared.events import Event
from shared.events.cluster import (
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
)
from shared.events.metrics import ClassReported, NodeReported, PodReported, Usage, WindowUsage
from shared.events.scheduling import PodPlaced
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import (
    AggregatedUsage,
    MetricCollectPolicy,
    NodeMetric,
    NodeMetricSpec,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    ResourceMap,
    Taint,
)
from shared.kube.pod import PodCondition
from tests.support.hypothesis_examples import examples
from tests.support.numa_machines import NUMA_LABEL, NUMA_SPEC, SPEC, STATUS, cpu_topology
from tests.support.pods import observed
from tests.support.scheduling_world import START_NS, World, node, pod, use

AMOUNTS = (
    "0", "1", "2", "500m", "1.5", "-1", "-9e18", "1e-30", "9" * 40, "1e999999999", "-1e999999999", "1e-999999999", "9" * 5000, str(2**53),
    str(2**63 - 1), str(2**63), str(2**64), "8Ei", "9223372036854775807Ei", "10k", "0.0000001n", "", "lots", "0x10", "1e", "NaN", "Inf", "١", "+3",
)  # fmt: skip
RESOURCES = (
    "cpu",
    "memory",
    "pods",
    "nvidia.com/gpu",
    "kubernetes.io/batch-cpu",
    "x" * 300,
    "",
    "never/seen-before",
    "ephemeral-storage",
)
TIMES = (
    "2026-05-29T12:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-31T00:00:00Z", "2026-13-01T00:00:00Z",
    "2026-05-29T25:00:00Z", "2026-05-29T12:00:00+99:99", "1969-12-31T23:59:59.999999999Z", "yesterday", "", None,
    instant_text(START_NS + 300 * SECOND), instant_text(START_NS - 300 * SECOND), instant_text(START_NS),
)  # fmt: skip
NUMBERS = (-(2**63), -1, 0, 1, 100, 2**31, 2**53, 2**63 - 1)
JSON = (
    "{}", "[]", "null", "1", '"x"', "", "{", '{"x":1}', "[" * 5000, '{"a":' * 5000, '{"cpu":"1e999999999"}', '{"cpu":-1}', '{"cpu":1e400}',
    '{"nodeNames":["n0"]}', '{"nodeNames":[""]}', '{"cpu":2.5}', '{"cpu":0.5,"memory":-3}', '{"cpu":1000000000000000000}',
    '{"cpuset":"0-3"}', '{"cpuset":"0-99999999999"}', '{"cpuset":"3-0"}', '{"cpuset":"-1"}', '{"detail":[{"id":-1}]}', '{"resources":{"cpu":"9e99"}}',
    '{"numaNodeResources":[{"node":-5,"resources":{"cpu":"1e999999999"}}]}', '{"usageThresholds":{"cpu":-1}}', '{"usageThresholds":{"cpu":9999999999999999999}}',
    '{"aggregatedUsage":{"usageThresholds":{"cpu":1},"usageAggregationType":"p95","usageAggregatedDuration":"-5m"}}', '{"reservedCPUs":"0-1"}',
    '{"requiredCPUBindPolicy":"FullPCPUs"}', '{"numaTopologyPolicy":"SingleNUMANode"}', '{"numaTopologyPolicy":"Whatever"}', cpu_topology(2, 4),
    '{"cpuset":"0-1","numaNodeResources":[{"node":0,"resources":{"cpu":"2"}}]}',
)  # fmt: skip

amounts = st.sampled_from(AMOUNTS)
resources = st.dictionaries(st.sampled_from(RESOURCES), amounts, max_size=4)
texts = st.sampled_from(JSON)
times = st.sampled_from(TIMES)
numbers = st.sampled_from(NUMBERS)
names = st.sampled_from(("n0", "n1", "n2"))


def notes(*keys: str) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(keys), texts, max_size=3)


node_notes = notes(
    "node.koordinator.sh/raw-allocatable", "node.koordinator.sh/resource-amplification-ratio", "node.koordinator.sh/reservation",
    "scheduling.koordinator.sh/usage-thresholds", "node.koordinator.sh/cpu-normalization-ratio",
)  # fmt: skip
pod_notes = notes(
    SPEC, STATUS, NUMA_SPEC, "scheduling.koordinator.sh/scheduling-hint", "scheduling.koordinator.sh/load-estimated-scaling-factors",
    "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled",
)  # fmt: skip
topology_notes = notes(
    "node.koordinator.sh/cpu-topology", "node.koordinator.sh/pod-cpu-allocs", "kubelet.koordinator.sh/cpu-manager-policy",
    "node.koordinator.sh/system-qos-resource", "node.koordinator.sh/reservation", "node.koordinator.sh/resource-amplification-ratio",
)  # fmt: skip


@st.composite
def nodes(draw: st.DrawFn) -> Event:
    made = node(
        draw(names),
        cpu=draw(amounts),
        memory=draw(amounts),
        pods=draw(amounts),
        labels=draw(
            st.dictionaries(st.sampled_from((NUMA_LABEL, "zone")), st.sampled_from(("SingleNUMANode", "x", "")))
        ),
        annotations=draw(node_notes),
        taints=draw(
            st.lists(st.builds(Taint, key=st.just("k"), effect=st.sampled_from(("NoSchedule", "What"))), max_size=1)
        ),
        extra=draw(resources),
    )
    return NodeObserved(node=made.metadata.name, object=made)


@st.composite
def pods(draw: st.DrawFn) -> Event:
    on = draw(st.sampled_from(("", "", "", "n0", "n1", "gone")))
    qos = draw(st.sampled_from(("LSR", "BE", "?")))
    made = pod(
        f"p{draw(st.integers(0, 7))}",
        cpu=draw(amounts),
        memory=draw(amounts),
        on=on,
        phase="Running" if on else draw(st.sampled_from(("Pending", "", "Odd"))),
        priority=draw(st.sampled_from((None, -(2**31), 0, 9999, 2**31 - 1))),
        labels={"koordinator.sh/qosClass": qos, "app": "a"},
        annotations=draw(pod_notes),
        conditions=draw(
            st.lists(
                st.builds(
                    PodCondition,
                    type=st.sampled_from(("PodScheduled", "Initialized")),
                    status=st.just("True"),
                    last_transition_time=times,
                ),
                max_size=2,
            )
        ),
        ports=draw(st.lists(st.sampled_from((-1, 0, 80, 10**9)), max_size=1)),
        extra=draw(resources),
    )
    return observed(made)


@st.composite
def metrics(draw: st.DrawFn) -> Event:
    name, used = draw(names), st.builds(ResourceMap, resources=resources)
    window = st.builds(
        AggregatedUsage,
        usage=st.dictionaries(st.sampled_from(("avg", "p95", "p101")), used, max_size=2),
        duration=st.sampled_from(("5m", "-5m", "5", "", "999999999h")),
    )
    usage = NodeUsage(
        node_usage=draw(used), system_usage=draw(used), aggregated_node_usages=tuple(draw(st.lists(window, max_size=2)))
    )
    by_pod = st.builds(
        PodUsage, name=st.just("p0"), namespace=st.just("d"), priority=st.just("koord-prod"), pod_usage=used
    )
    status = NodeMetricStatus(
        update_time=draw(times), node_metric=usage, pods_metric=tuple(draw(st.lists(by_pod, max_size=1)))
    )
    policy = MetricCollectPolicy(report_interval_seconds=draw(st.none() | numbers))
    spec = NodeMetricSpec(metric_collect_policy=policy)
    return NodeMetricObserved(node=name, object=NodeMetric(metadata=Metadata(name=name), spec=spec, status=status))


@st.composite
def topologies(draw: st.DrawFn) -> Event:
    name = draw(names)
    zone = st.fixed_dictionaries(
        {
            "name": st.sampled_from(("node-0", "node-1", "node-63", "node--1", "node-999999999", "x")),
            "type": st.just("Node"),
            "resources": st.lists(
                st.fixed_dictionaries({"name": st.sampled_from(RESOURCES), "allocatable": amounts}), max_size=2
            ),
        }
    )
    object_: dict[str, Any] = {
        "metadata": {"name": name, "annotations": draw(topology_notes)},
        "zones": draw(st.lists(zone, max_size=3)),
        "topologyPolicies": draw(st.lists(st.sampled_from(("SingleNUMANodePodLevel", "?")), max_size=1)),
    }
    return ObjectObserved(
        resource=NODE_TOPOLOGIES,
        name=name,
        uid=name,
        object=draw(st.sampled_from((object_, object_, {}, {"zones": 1}))),
    )


usages = st.builds(Usage, cpu_milli=st.none() | numbers, memory=st.none() | numbers)
reports = st.builds(
    NodeReported,
    node=names,
    at_ns=st.sampled_from((*NUMBERS, START_NS, START_NS + 600 * SECOND)),
    interval_s=numbers,
    aggregate_s=numbers,
    usage=usages,
    system=usages,
    windows=st.lists(
        st.builds(WindowUsage, duration_s=numbers, node=st.lists(usages, min_size=5, max_size=5).map(tuple)), max_size=1
    ).map(tuple),
    pods=st.just((ClassReported("koord-prod", "LS", (PodReported("d/p0", 2**63 - 1, -1), PodReported("", 1, 1))),)),
)
budgets = st.builds(
    ObjectObserved,
    resource=st.just(BUDGETS),
    name=st.just("d/b"),
    uid=st.just("b"),
    object=st.sampled_from(
        ({}, {"spec": {"selector": {"matchLabels": {"app": "a"}}}, "status": {"disruptionsAllowed": -5}})
    ),
)
cluster = st.one_of(
    nodes(), nodes(), pods(), pods(), pods(), metrics(), topologies(), budgets,
    st.builds(NodeDeleted, node=names, node_uid=st.just("u")),
    st.builds(NodeMetricDeleted, node=names),
    st.builds(ObjectDeleted, resource=st.just(NODE_TOPOLOGIES), name=names, uid=st.just("u")),
)  # fmt: skip
seconds = st.sampled_from((0, 1, 20, 400, -1, -600))
steps = st.lists(
    st.tuples(st.lists(cluster, max_size=6), st.lists(reports, max_size=2), seconds), min_size=1, max_size=5
)

CONFIG = (
    DEFAULT_PROFILE[: DEFAULT_PROFILE.index("  pluginConfig:")]
    + """\
  plugins:
    multiPoint:
      enabled:
      - {name: LoadAwareScheduling}
      - {name: NodeNUMAResource}
      - {name: SchedulingHint}
      - {name: NodeResourcesFitPlus}
      - {name: ScarceResourceAvoidance}
  pluginConfig:
  - name: LoadAwareScheduling
    args:
      allowCustomizeEstimation: true
      prodUsageIncludeSys: true
      scoreAccordingProdUsage: true
      dominantResourceWeight: 1
      prodUsageThresholds: {cpu: 50}
      usageThresholds: {cpu: 50, memory: 50}
      aggregated: {usageThresholds: {cpu: 60}, usageAggregationType: p95, scoreAggregationType: p95}
      estimatedSecondsAfterPodScheduled: 60
  - name: NodeResourcesFitPlus
    args: {resources: {cpu: {type: LeastAllocated, weight: 1}, nvidia.com/gpu: {type: MostAllocated, weight: 2}}}
  - name: ScarceResourceAvoidance
    args: {resources: [nvidia.com/gpu]}
"""
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_no_observation_of_a_cluster_ends_the_scheduler(
    steps: list[tuple[list[Event], list[NodeReported], int]],
) -> None:
    world = World(believes_annotations=True)
    world.logs["metrics-0"] = []
    use(world, CONFIG)
    for seen, reported, later_s in steps:
        for event in seen:
            world.observe(event)
        world.read()
        for report in reported:
            world.view.apply(world.append("metrics-0", report, None))
        world.wait(later_s)
        for record in world.cycles(most=20):
            msgspec.json.encode(record.event)
            if isinstance(record.event, PodPlaced):
                assert record.event.node in world.view.nodes
                world.answer(record, "rejected" if record.seq % 2 else "bound")
    restored = SchedulerState()
    restored.restore(world.view.encode())
    cache = world.indexed()
    assert decide(CycleInputs(restored, cache.profiles), world.now_ns, 9) == decide(cache, world.now_ns, 9)
