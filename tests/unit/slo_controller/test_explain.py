"""Explanations add up, whatever the strategy."""

from hypothesis import given
from hypothesis import strategies as st

from services.slo_controller.overcommit import batch_resources
from services.slo_controller.overcommit.explain import explain
from tests.support.slo_cluster import ON, Cluster

G = 10**9


def test_the_steps_lead_from_capacity_to_batch_cpu() -> None:
    cluster = Cluster()
    cluster.configure()
    cluster.node()
    cluster.pod("web", cpu="40", memory="60G")
    cluster.report(30, {"web": (33_000, 33 * G)}, system=(7_000, 12 * G))
    decided = cluster.decided(31)
    assert decided is not None
    found = explain(decided)[0]
    assert (found.resource, found.quantity, found.adds_up) == (batch_resources.CPU, "25k", True)
    assert [(step.sign, step.name, step.amount) for step in found.steps] == [
        ("", "capacity", 100_000),
        ("-", "margin", 35_000),
        ("-", "system", 7_000),
        ("-", "pods", 33_000),
        ("=", "left", 25_000),
        ("=", batch_resources.CPU, 25_000),
    ]


def test_a_removed_resource_has_no_steps() -> None:
    cluster = Cluster()
    cluster.configure()
    cluster.node()
    cluster.report(30, {})
    cluster.decide(31)
    cluster.configure({"enable": False})
    decided = cluster.decided(40)
    assert decided is not None
    assert [(each.quantity, each.steps, each.adds_up) for each in explain(decided)] == [(None, (), True)] * 4


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "cpuReclaimThresholdPercent": st.integers(0, 150),
            "memoryReclaimThresholdPercent": st.integers(0, 150),
            "cpuCalculatePolicy": st.sampled_from(["usage", "request", "maxUsageRequest"]),
            "memoryCalculatePolicy": st.sampled_from(["usage", "request", "maxUsageRequest"]),
            "batchCPUThresholdPercent": st.integers(0, 120),
            "midUnallocatedPercent": st.integers(0, 100),
            "midReclaimMode": st.sampled_from(["", "static"]),
            "koordstream": st.sampled_from([{"floor": {"cpu": "3"}}, {"cap": {"cpu": "900m", "memory": "1G"}}]),
        },
    ),
    st.integers(0, 64_000),
    st.integers(0, 200 * G),
)
def test_every_explanation_adds_up(strategy: dict[str, object], cpu: int, memory: int) -> None:
    cluster = Cluster()
    cluster.configure(ON | strategy)
    amounts = '{"allocations":[{"name":"x","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"700"}}]}'
    cluster.node(cpu="63999m", annotations={"node.koordinator.sh/thirdPartyAllocations": amounts})
    cluster.pod("web")
    cluster.report(30, {"web": (cpu, memory)}, system=(333, G))
    decided = cluster.decided(31)
    assert decided is not None
    assert all(each.adds_up for each in explain(decided)), explain(decided)
