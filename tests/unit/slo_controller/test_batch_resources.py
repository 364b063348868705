"""Batch resources, by the worked examples of spec/slo-controller.md 4.4-4.7."""

from typing import Any

import pytest

from services.slo_controller.overcommit.batch_resources import BatchResources, FormulaTerms, calculate_batch, margin_of
from services.slo_controller.overcommit.node_capacity_and_reservation import RESERVATION, reserved_of
from services.slo_controller.overcommit.usage_sums import CountedPod, PodDemand, PodSums, UsageSums, sum_usage
from services.slo_controller.state.pod_usage_columns import pod_usage_columns
from services.slo_controller.state.usage_report import BATCH_BAND, ApplicationUsage, UsageReport
from shared.domain.cpu_memory import MILLI, ZERO, Amount
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.node_resource_topology import Zone, ZoneResource
from shared.kube.quantity import NANO, milli
from shared.kube.slo_config import ColocationStrategy

GI = 1 << 30
G = 10**9


def cpu(size: int) -> Amount:
    return Amount(size * MILLI, 0)


def memory(size: int) -> Amount:
    return Amount(0, size * NANO)


def both(cores: float, giga: float) -> Amount:
    return Amount(int(cores * 1000) * MILLI, int(giga * G) * NANO)


def batch(capacity: Amount, system: Amount, sums: PodSums, reserved: Amount = ZERO, **strategy: Any) -> BatchResources:
    of = ColocationStrategy(**strategy)
    return calculate_batch(
        FormulaTerms(capacity, margin_of(capacity, of), system, reserved, sums), of, (), UsageSums(sums)
    )


@pytest.mark.parametrize(
    ("id_", "capacity", "percent", "system", "reserved", "used", "expected"),
    [
        ("BU1", 100_000, 65, 7_000, 0, 33_000, 25_000),
        ("BU2", 32_000, 60, 2_000, 4_000, 6_250, 8_950),
        ("BU3", 8_000, 60, 900, 0, 5_000, 0),
        ("BU4", 7_999, 63, 311, 0, 1_517, 3_212),
        ("BU5", 100_000, 150, 7_000, 0, 33_000, 110_000),
    ],
)
def test_cpu_by_usage(
    id_: str, capacity: int, percent: int, system: int, reserved: int, used: int, expected: int
) -> None:
    sums = PodSums(used=cpu(used))
    found = batch(cpu(capacity), cpu(system), sums, cpu(reserved), cpu_reclaim_threshold_percent=percent)
    assert found.cpu == expected, id_
    by_request = batch(
        cpu(capacity), cpu(system), sums, cpu(reserved), cpu_reclaim_threshold_percent=percent,
        cpu_calculate_policy="request",
    )  # fmt: skip
    assert by_request.cpu == expected, "BX5"


@pytest.mark.parametrize(
    ("id_", "capacity", "percent", "system", "most", "expected"),
    [
        ("BX1", 100_000, 70, 7_000, 42_000, 21_000),
        ("BX2", 32_000, 60, 4_000, 12_500, 2_700),
        ("BX3", 100_000, 150, 7_000, 42_000, 101_000),
        ("BX4", 8_000, 60, 900, 3_900, 0),
    ],
)
def test_cpu_by_maximum(id_: str, capacity: int, percent: int, system: int, most: int, expected: int) -> None:
    found = batch(
        cpu(capacity), cpu(system), PodSums(max=cpu(most)), cpu_reclaim_threshold_percent=percent,
        cpu_calculate_policy="maxUsageRequest",
    )  # fmt: skip
    assert found.cpu == expected, id_


@pytest.mark.parametrize(
    ("id_", "policy", "capacity", "percent", "system", "reserved", "taken", "expected"),
    [
        ("MU1", "usage", 120 * G, 65, 12 * G, 0, 33 * G, 33 * G),
        ("MU2", "usage", 64 * GI, 65, 3 * GI + (512 << 20), 2 * GI, 15 * GI, 24_803_436_135),
        ("MU3", "usage", 16 * GI, 65, 2 * GI, 0, 10 * GI, 0),
        ("MU4", "usage", 33_566_560_256, 67, 1_234_567_890, 0, 9_876_543_210, 11_378_484_272),
        ("MR1", "request", 120 * G, 80, 12 * G, 0, 60 * G, 36 * G),
        ("MR2", "request", 64 * GI, 65, 3 * GI, 2 * GI, 24 * GI, 16_750_372_455),
        ("MR3", "request", 120 * G, 120, 12 * G, 0, 60 * G, 84 * G),
        ("MR4", "request", 16 * GI, 65, 6 * GI, 0, 8 * GI, 2_576_980_378),
        ("MX1", "maxUsageRequest", 120 * G, 120, 12 * G, 0, 60 * G, 72 * G),
        ("MX2", "maxUsageRequest", 64 * GI, 65, 3 * GI + (512 << 20), 2 * GI, 25 * GI, 14_066_017_895),
        ("MX3", "maxUsageRequest", 120 * G, 65, 12 * G, 0, 60 * G, 6 * G),
        ("MX4", "maxUsageRequest", 16 * GI, 65, 2 * GI, 0, 8 * GI, 429_496_730),
    ],
)
def test_memory_by_policy(
    id_: str, policy: str, capacity: int, percent: int, system: int, reserved: int, taken: int, expected: int
) -> None:
    sums = PodSums(**{{"usage": "used", "request": "request"}.get(policy, "max"): memory(taken)})
    found = batch(
        memory(capacity), memory(system), sums, memory(reserved), memory_reclaim_threshold_percent=percent,
        memory_calculate_policy=policy,
    )  # fmt: skip
    assert found.memory == expected * NANO, id_


def test_limits_in_percent_of_the_capacity() -> None:
    def limited(capacity: int, raw_percent: int, limit: int, taken: int = 0) -> int:
        return batch(
            cpu(capacity), cpu(taken), PodSums(), cpu_reclaim_threshold_percent=raw_percent,
            batch_cpu_threshold_percent=limit,
        ).cpu  # fmt: skip

    assert limited(32_000, 60, 33, 2_000) == 10_560, "C1"
    assert limited(100_000, 101, 100) == 100_000, "C3"
    assert limited(100_000, 60, 0) == 0, "C4"
    assert limited(100_000, 25, 200) == 25_000, "C5"
    found = batch(
        memory(64 * GI), memory(2 * GI), PodSums(used=memory(2 * GI)), memory_reclaim_threshold_percent=65,
        batch_memory_threshold_percent=20,
    )  # fmt: skip
    assert found.memory == 13_743_895_347 * NANO, "C2"


@pytest.mark.parametrize(
    ("id_", "allocatable", "annotation", "expected"),
    [
        ("R1", ("31", "62Gi"), "", (1_000, 2 * GI)),
        ("R2", ("31", "62Gi"), '{"resources":{"cpu":"4","memory":"1Gi"}}', (4_000, 2 * GI)),
        ("R3", ("31", "62Gi"), '{"resources":{"cpu":"10"},"reservedCPUs":"0-3,8"}', (5_000, 2 * GI)),
        ("R4", ("48", "64Gi"), "", (0, 0)),
        ("R5", ("31", "62Gi"), '{"resources":{"cpu":"1x"}}', (1_000, 2 * GI)),
    ],
)
def test_reservation_of_the_kubelet_and_of_the_annotation(
    id_: str, allocatable: tuple[str, str], annotation: str, expected: tuple[int, int]
) -> None:
    node = Node(
        metadata=Metadata(name="n", annotations={RESERVATION: annotation} if annotation else None),
        status=NodeStatus(
            capacity={"cpu": "32", "memory": "64Gi"}, allocatable=dict(zip(("cpu", "memory"), allocatable, strict=True))
        ),
    )
    assert reserved_of(node) == Amount(expected[0] * MILLI, expected[1] * NANO), id_


@pytest.mark.parametrize(
    ("id_", "classes", "cores"),
    [
        ("H1", ("koord-prod",), 5), ("H2", ("koord-mid",), 5), ("H3", ("koord-batch",), 0),
        ("H4", ("koord-free", ""), 0), ("H5", ("koord-prod", "koord-mid", "koord-batch"), 10),
    ],
)  # fmt: skip
def test_host_applications_above_batch_are_system(id_: str, classes: tuple[str, ...], cores: int) -> None:
    measured = UsageReport(applications=tuple(ApplicationUsage(both(5, 5), name) for name in classes))
    assert measured.applications_above(BATCH_BAND) == both(cores, cores), id_


def pod(class_: str = "koord-prod", qos: str = "LS", *, numa: tuple[int, ...] = ()) -> CountedPod:
    return CountedPod("d/p", PodDemand(both(4, 8), class_, qos, numa))


def measured_pod(usage: Amount | None, class_: str = "koord-prod") -> UsageReport:
    return UsageReport(pods=pod_usage_columns({} if usage is None else {"d/p": (*usage, class_)}))


@pytest.mark.parametrize(
    ("id_", "counted", "usage", "used", "most"),
    [
        ("P1", pod(), both(1, 3), both(1, 3), both(4, 8)),
        ("P2", pod(qos="LSE"), both(1, 3), both(4, 3), both(4, 8)),
        ("P3", pod(), both(6, 3), both(6, 3), both(6, 8)),
        ("P4", pod(), None, both(4, 8), ZERO),
        ("P5", pod("koord-mid", "BE"), both(1, 3), both(1, 3), both(4, 8)),
        ("P6", pod("koord-batch", "BE"), both(1, 3), ZERO, ZERO),
        ("P7", None, both(1, 3), both(1, 3), both(1, 3)),
        ("P9, P10", pod(), both(1, 3), both(1, 3), both(4, 8)),
    ],
)
def test_sums_of_one_pod(
    id_: str, counted: CountedPod | None, usage: Amount | None, used: Amount, most: Amount
) -> None:
    """P7 is a pod that is not live: the state leaves it out."""
    sums = sum_usage([counted] if counted else [], measured_pod(usage)).node
    assert (sums.used, sums.max) == (used, most), id_
    high = counted is not None and counted.demand.priority != "koord-batch"
    assert sums.request == (both(4, 8) if high else ZERO), id_


def test_p8_usage_of_a_deleted_batch_pod_does_not_count() -> None:
    assert sum_usage([], measured_pod(both(1, 3), "koord-batch")).node == PodSums()


def zone(name: str, cores: str, size: str) -> Zone:
    return Zone(
        name=name, type="Node",
        resources=(ZoneResource(name="cpu", allocatable=cores), ZoneResource(name="memory", allocatable=size)),
    )  # fmt: skip


def zoned(
    zones: tuple[Zone, ...], system: Amount, pods: list[CountedPod], usage: dict[str, Amount], percents: tuple[int, int]
) -> dict[str, BatchResources]:
    measured = UsageReport(pods=pod_usage_columns({key: (*size, "koord-prod") for key, size in usage.items()}))
    usage_sums = sum_usage(pods, measured, len(zones))
    strategy = ColocationStrategy(
        cpu_reclaim_threshold_percent=percents[0], memory_reclaim_threshold_percent=percents[1]
    )
    capacity = both(100, 120)
    terms = FormulaTerms(capacity, margin_of(capacity, strategy), system, ZERO, usage_sums.node)
    return calculate_batch(terms, strategy, zones, usage_sums).zones


def named(key: str, numa: tuple[int, ...], class_: str = "koord-prod") -> CountedPod:
    return CountedPod(key, PodDemand(both(1, 1), class_, "LS", numa))


def test_z1_z2_a_pod_bound_to_a_zone_counts_there_and_others_in_all() -> None:
    found = zoned(
        (zone("0", "50", "62G"), zone("1", "50", "58G")),
        both(7, 12),
        [named("a", (0,)), named("b", ()), named("c", (), "koord-mid"), named("d", (), "koord-batch")],
        {"a": both(5, 5), "b": both(6, 6), "c": both(22, 22), "d": both(9, 9)},
        (65, 65),
    )
    assert [found["0"].cpu, found["1"].cpu] == [10_000, 15_000], "Z1"
    assert [found["0"].memory, found["1"].memory] == [15_300_000_000 * NANO, 17_700_000_000 * NANO], "Z2"


def test_z3_z4_parts_are_rounded_up_to_thousandths() -> None:
    zones = tuple(zone(str(index), "16", "20Gi") for index in range(3))
    found = zoned(
        zones,
        Amount(2 * NANO, 4 * GI * NANO),
        [named("a", (0,)), named("b", ())],
        {"a": Amount(3 * NANO, 4 * GI * NANO), "b": Amount(NANO, GI * NANO)},
        (60, 65),
    )
    assert [found[name].cpu for name in "012"] == [5_599, 8_599, 8_599], "Z3"
    expected = [7_874_106_709_332, 12_169_074_005_332, 12_169_074_005_332]
    assert [milli(found[name].memory) for name in "012"] == expected, "Z4"


def test_z5_a_zone_listed_twice_gets_half_of_the_pod() -> None:
    usage_sums = sum_usage([named("a", (0, 0))], UsageReport(pods=pod_usage_columns({"a": (*both(2, 2), "")})), 2)
    assert [sums.used for sums in usage_sums.zones] == [both(1, 1), ZERO]


def test_z6_an_unknown_zone_is_ignored() -> None:
    usage_sums = sum_usage([named("a", (7,))], UsageReport(pods=pod_usage_columns({"a": (*both(2, 2), "")})), 2)
    assert [sums.used for sums in usage_sums.zones] == [both(1, 1), both(1, 1)]


def test_a_pod_that_was_not_measured_counts_in_its_zones_maximum() -> None:
    usage_sums = sum_usage([named("a", (1,))], UsageReport(), 2)
    assert usage_sums.node.max == ZERO
    assert [sums.max for sums in usage_sums.zones] == [ZERO, both(1, 1)]
