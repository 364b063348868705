"""Mid resources, by the worked examples of spec/slo-controller.md 5.3."""

from typing import Any

import pytest

from services.slo_controller.overcommit.mid_resources import calculate_mid
from services.slo_controller.overcommit.usage_sums import CountedPod, PodDemand, UsageSums, sum_usage
from services.slo_controller.state.usage_report import ApplicationUsage, UsageReport
from shared.domain.cpu_memory import MILLI, ZERO, Amount
from shared.kube.quantity import NANO
from shared.kube.slo_config import ColocationStrategy

GI = 1 << 30
CAPACITY = Amount(32 * NANO, 64 * GI * NANO)


def amount(cpu_milli: int, memory: int) -> Amount:
    return Amount(cpu_milli * MILLI, memory * NANO)


def unallocated(
    system: Amount = ZERO, reserved: Amount = ZERO, prod: Amount = ZERO, *applications: ApplicationUsage
) -> tuple[int, int]:
    measured = UsageReport(has_node=True, system=system, applications=applications)
    strategy = ColocationStrategy(mid_unallocated_percent=100)
    return calculate_mid(CAPACITY, reserved, measured, UsageSums(prod_request=prod), strategy).unallocated


def test_capacity_that_prod_pods_have_not_requested() -> None:
    system, reserved = amount(1_000, 2 * GI), amount(2_000, GI)
    assert unallocated(system, reserved, amount(14_000, 30 * GI)) == (16_000, 32 * GI), "UA1"
    assert unallocated(system, reserved, amount(40_000, 0))[0] == 0, "UA2"
    prod = ApplicationUsage(amount(3_000, 0), "koord-prod")
    assert unallocated(system, reserved, amount(14_000, 0), prod)[0] == 14_000, "UA6"
    mid = ApplicationUsage(amount(3_000, 0), "koord-mid")
    assert unallocated(system, reserved, amount(14_000, 0), mid)[0] == 16_000


@pytest.mark.parametrize(
    ("id_", "class_", "live", "expected"),
    [
        ("UA3", "koord-prod", True, 4_000), ("UA3 mid", "koord-mid", True, 0), ("UA3 batch", "koord-batch", True, 0),
        ("UA4", "", True, 4_000), ("UA5", "koord-prod", False, 0),
    ],
)  # fmt: skip
def test_pods_that_count_as_prod(id_: str, class_: str, live: bool, expected: int) -> None:
    pod = CountedPod("d/p", PodDemand(amount(4_000, 0), class_, "LSR"))
    assert sum_usage([pod] if live else [], UsageReport()).prod_request == amount(expected, 0), id_


def dynamic(
    free: tuple[int, int], unused: tuple[int, int] | None, reclaimable: tuple[int, int], **strategy: Any
) -> tuple[int, int]:
    """Mid resources of a node of which prod pods have left `free`, and which uses all but `unused`."""
    measured = UsageReport(
        has_node=True,
        node=None if unused is None else CAPACITY.minus(amount(*unused)),
        reclaimable=amount(*reclaimable),
    )
    usage_sums = UsageSums(prod_request=CAPACITY.minus(amount(*free)))
    found = calculate_mid(CAPACITY, ZERO, measured, usage_sums, ColocationStrategy(**strategy))
    return found.cpu, found.memory


def test_dynamic_mode() -> None:
    free, half = (16_000, 32 * GI), {"mid_cpu_threshold_percent": 45, "mid_memory_threshold_percent": 45}
    unused, reclaimable = (20_000, 40 * GI), (8_000, 12 * GI)
    assert dynamic(free, unused, reclaimable) == (8_000, 12_884_901_888), "MD1"
    found = dynamic(free, unused, reclaimable, mid_unallocated_percent=40, **half)
    assert found == (14_400, 26_628_797_235), "MD2"
    found = dynamic(free, (5_000, 6 * GI), reclaimable, mid_unallocated_percent=50)
    assert found == (13_000, 23_622_320_128), "MD3"
    little = (11_001, GI + 1)
    assert dynamic(little, None, reclaimable, mid_unallocated_percent=33) == (3_630, 354_334_802), "MD4"
    assert dynamic(little, (-500, -1), reclaimable, mid_unallocated_percent=33) == (3_630, 354_334_802), "MD5"
    assert dynamic(free, unused, (0, 0)) == (0, 0), "MD6"
    assert dynamic(free, (31_000, 0), (40_000, 0), mid_unallocated_percent=20)[0] == 32_000, "MD7"


@pytest.mark.parametrize(
    ("id_", "capacity", "shares", "thresholds", "expected"),
    [
        ("MS1", (32_000, 64 * GI), (25, 30), (100, 100), (8_000, 20_615_843_020)),
        ("MS2", (32_000, 64 * GI), (50, 60), (40, 45), (12_800, 30_923_764_531)),
        ("MS3", (7_999, 33_566_560_256), (33, 29), (100, 100), (2_639, 9_734_302_474)),
        ("MS4", (32_000, 64 * GI), (0, 0), (100, 100), (0, 0)),
        ("MS5", (32_000, 64 * GI), (150, 150), (100, 100), (32_000, 68_719_476_736)),
    ],
)
def test_static_mode(
    id_: str, capacity: tuple[int, int], shares: tuple[int, int], thresholds: tuple[int, int], expected: tuple[int, int]
) -> None:
    strategy = ColocationStrategy(
        mid_reclaim_mode="static",
        mid_static_cpu_reserved_percent=shares[0],
        mid_static_memory_reserved_percent=shares[1],
        mid_cpu_threshold_percent=thresholds[0],
        mid_memory_threshold_percent=thresholds[1],
    )
    found = calculate_mid(amount(*capacity), ZERO, UsageReport(), UsageSums(), strategy)
    assert (found.cpu, found.memory) == expected, id_
