"""Products and quotients, by the worked examples of spec/slo-controller.md 0.2."""

import pytest

from shared.domain.cpu_memory import MILLI, div, mul_int, mul_milli, reserve_ratio
from shared.kube.quantity import NANO

GI = 1 << 30
G = 10**9


@pytest.mark.parametrize(
    ("id_", "cpu_milli", "percent", "expected"),
    [
        ("N1", 100_000, 65, 35_000), ("N2", 7, 65, 2), ("N3", 33_333, 71, 9_666),
        ("N4", 64_000, 150, -32_000), ("N5", 10_001, 60, 4_000),
    ],
)  # fmt: skip
def test_cpu_is_truncated_to_milli_cores(id_: str, cpu_milli: int, percent: int, expected: int) -> None:
    assert mul_milli(cpu_milli * MILLI, reserve_ratio(percent)) == expected * MILLI, id_


@pytest.mark.parametrize(
    ("id_", "memory", "percent", "expected"),
    [("N6", 64 * GI, 65, 24_051_816_857), ("N7", 1_000_000_007, 70, 300_000_002), ("N8", 120 * G, 120, -24 * G)],
)
def test_memory_is_truncated_to_bytes(id_: str, memory: int, percent: int, expected: int) -> None:
    assert mul_int(memory * NANO, reserve_ratio(percent)) == expected * NANO, id_


def test_a_quotient_is_rounded_up_to_a_thousandth() -> None:
    assert div(2 * NANO, 3) == 667 * MILLI
    assert div(5 * NANO, 0) == 5 * NANO
