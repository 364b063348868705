"""Histograms, by the worked examples of spec/slo-controller.md 11.2."""

import math

import pytest

from shared.kube.instants import SECOND, instant_ns
from shared.prediction.histogram import CPU, MEMORY, BadCheckpoint, Buckets, Checkpoint, Histogram

HOUR = 3600 * SECOND
HALF_LIFE = 12 * HOUR
MIDNIGHT = instant_ns("2026-05-01T00:00:00Z")
GI = float(1 << 30)


def cpu(*samples: tuple[float, int]) -> Histogram:
    """A histogram of (cores, instant)."""
    found = Histogram(CPU, HALF_LIFE)
    for value, at_ns in samples:
        found.add(value, 1.0, at_ns)
    return found


def end(buckets: Buckets, value: float, unit: int) -> int:
    histogram = Histogram(buckets)
    histogram.add(value, 1.0, 0)
    return math.trunc(histogram.percentile(0.95) * unit)


@pytest.mark.parametrize(
    ("id_", "value", "bucket", "milli"),
    [
        ("HB1", 0.0, 0, 25), ("HB2", 0.025, 1, 51), ("HB3", 0.5, 14, 539), ("HB4", 1.0, 22, 1035),
        ("HB5", 2.0, 32, 2001), ("HB6", 4.0, 45, 4217), ("HB7", 8.0, 58, 8394), ("HB8", 2000.0, 157, 1_060_437),
    ],
)  # fmt: skip
def test_buckets_of_cpu(id_: str, value: float, bucket: int, milli: int) -> None:
    assert CPU.number == 158
    assert (CPU.find(value), end(CPU, value, 1000)) == (bucket, milli), id_


@pytest.mark.parametrize(
    ("id_", "value", "bucket", "size"),
    [
        ("HM1", 0.0, 0, 5_242_880), ("HM2", GI, 49, 1_097_586_419), ("HM3", 2 * GI, 62, 2_162_529_934),
        ("HM4", 8 * GI, 90, 8_783_594_342),
    ],
)  # fmt: skip
def test_buckets_of_memory(id_: str, value: float, bucket: int, size: int) -> None:
    assert MEMORY.number == 205
    assert (MEMORY.find(value), end(MEMORY, value, 1)) == (bucket, size), id_


@pytest.mark.parametrize(
    ("id_", "first_ns", "reference_ns", "factor"),
    [
        ("HD3", MIDNIGHT + 5 * HOUR, MIDNIGHT, 1.33483984), ("HD4", MIDNIGHT + 7 * HOUR, MIDNIGHT + 12 * HOUR, 0.74915354),
        ("HD1", MIDNIGHT, MIDNIGHT, 1.0),
    ],
)  # fmt: skip
def test_the_first_sample_anchors_the_reference(id_: str, first_ns: int, reference_ns: int, factor: float) -> None:
    found = cpu((1.0, first_ns))
    assert found.reference_ns == reference_ns, id_
    assert found.total == pytest.approx(factor)


def test_hd2_a_sample_a_half_life_later_counts_twice() -> None:
    found = cpu((1.0, MIDNIGHT), (4.0, MIDNIGHT + HALF_LIFE))
    assert (found.weights[22], found.weights[45]) == (1.0, 2.0)


def test_hd5_the_reference_moves_beyond_a_hundred_half_lives() -> None:
    limit = MIDNIGHT + 100 * HALF_LIFE
    assert cpu((1.0, MIDNIGHT), (1.0, limit)).reference_ns == MIDNIGHT
    assert cpu((1.0, MIDNIGHT), (1.0, limit + 1)).reference_ns == limit


def milli(histogram: Histogram, share: float) -> int:
    return math.trunc(histogram.percentile(share) * 1000)


def test_percentiles_are_ends_of_buckets() -> None:
    assert {milli(cpu((1.0, MIDNIGHT)), share) for share in (0.0, 0.5, 0.95, 1.0)} == {1035}, "HP1"
    many = cpu(*[(1.0, MIDNIGHT)] * 19, (4.0, MIDNIGHT))
    assert (milli(many, 0.95), milli(many, 0.98)) == (1035, 4217), "HP2"
    growing = cpu((1.0, MIDNIGHT), (2.0, MIDNIGHT + HALF_LIFE), (4.0, MIDNIGHT + 2 * HALF_LIFE))
    assert (milli(growing, 0.5), milli(growing, 0.4)) == (4217, 2001), "HP3"
    assert Histogram(CPU).percentile(0.5) == 0.0, "HP4"


def test_hc1_weights_are_stored_relative_to_the_largest() -> None:
    growing = cpu((1.0, MIDNIGHT), (2.0, MIDNIGHT + HALF_LIFE), (4.0, MIDNIGHT + 2 * HALF_LIFE))
    saved = growing.save()
    assert saved == Checkpoint({22: 2500, 32: 5000, 45: 10000}, 7.0, MIDNIGHT)
    loaded = Histogram(CPU, HALF_LIFE)
    loaded.load(saved)
    assert [loaded.weights[bucket] for bucket in (22, 32, 45)] == [1.0, 2.0, 4.0]


def test_hc2_a_weight_that_rounds_to_zero_is_left_out() -> None:
    histogram = Histogram(CPU)
    histogram.add(1.0, 10_000.0, 0)
    histogram.add(4.0, 0.4, 0)
    assert histogram.save().weights == {22: 10_000}


def test_hc3_a_loaded_histogram_has_the_stored_precision() -> None:
    histogram = Histogram(CPU)
    histogram.add(1.0, 3.0, 0)
    histogram.add(2.0, 1.0, 0)
    assert histogram.save().weights == {22: 10_000, 32: 3_333}
    loaded = Histogram(CPU)
    loaded.load(histogram.save())
    assert loaded.weights[32] == pytest.approx(0.99992, abs=1e-5)


@pytest.mark.parametrize("bad", [Checkpoint({158: 1}, 1.0), Checkpoint({-1: 1}, 1.0), Checkpoint({1: 1}, -1.0)])
def test_hc4_a_checkpoint_that_does_not_fit_is_rejected(bad: Checkpoint) -> None:
    with pytest.raises(BadCheckpoint):
        Histogram(CPU).load(bad)
