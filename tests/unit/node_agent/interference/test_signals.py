"""Signals between two readings of the kernel's counters."""

import pytest

from services.node_agent.interference.signals import Counters, activity_of, signals_of

SECOND = 1_000_000_000


def test_scheduling_latency_is_the_wait_per_time_slice_of_all_threads_new_ones_included() -> None:
    before = Counters(0, {1: (1_000_000, 100), 2: (5_000_000, 50)})
    after = Counters(2 * SECOND, {1: (7_000_000, 130), 3: (4_000_000, 20)})  # 2 has ended, 3 is new
    assert signals_of(before, after) == {"schedulingLatency": (6_000_000 + 4_000_000) / 50 / 1000}


def test_a_thread_whose_counters_went_back_is_another_one_and_an_idle_pod_has_no_latency() -> None:
    before = Counters(0, {1: (9_000_000, 900)})
    assert signals_of(before, Counters(SECOND, {1: (1_000, 20)})) == {}
    assert signals_of(before, Counters(SECOND, {1: (9_900_000, 905)})) == {}


def test_rates_are_by_second_and_absent_where_the_kernel_does_not_count_or_began_again() -> None:
    before = Counters(0, refaults=100, direct_reclaim=10, drops=5, segments=1000, retransmitted=10)
    after = Counters(2 * SECOND, refaults=300, direct_reclaim=4, drops=None, segments=1200, retransmitted=16)
    assert signals_of(before, after) == {"refaults": 100.0, "retransmits": 30.0}


def test_few_segments_are_no_share() -> None:
    before, after = Counters(0, segments=0, retransmitted=0), Counters(SECOND, segments=5, retransmitted=5)
    assert signals_of(before, after) == {}


def test_pressure_latency_and_cpi_are_values_of_the_newer_reading_in_the_order_of_the_signals() -> None:
    after = Counters(SECOND, pressure={"ioPressure": 3.5}, io_latency_us=700.0, cycles=3_000, instructions=2_000)
    found = signals_of(Counters(0), after)
    assert list(found.items()) == [("cpi", 1.5), ("ioPressure", 3.5), ("diskLatency", 700.0)]
    assert signals_of(Counters(0), Counters(SECOND, cycles=5, instructions=0)) == {}


def test_activity_has_usage_and_bytes_a_second() -> None:
    after = Counters(2 * SECOND, io_bytes=4096, sent_bytes=10, cpu_milli=1500.0, memory=7.0)
    assert activity_of(Counters(0, io_bytes=0, sent_bytes=4), after) == {
        "cpu": 1500.0, "memory": 7.0, "io": 2048.0, "network": 3.0,
    }  # fmt: skip


@pytest.mark.parametrize("at_ns", [0, -1])
def test_without_time_between_them_there_is_nothing(at_ns: int) -> None:
    assert signals_of(Counters(0, refaults=1), Counters(at_ns, refaults=9)) == {}
    assert activity_of(Counters(0), Counters(at_ns, cpu_milli=1.0)) == {}
