"""Percentiles, means and cold starts: the spec's worked examples, and random reports against a plain reference."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metrics_ingest.agent_reports.aggregation_policy import Policy, policy_of
from services.metrics_ingest.agent_reports.node_usage_series import PERCENTS, NodeUsageSeries, rank
from services.metrics_ingest.agent_reports.usage_windows import NodeWindows
from shared.agents.report import PodSum, Report, Series
from shared.events.metrics import Usage
from shared.kube.instants import SECOND
from shared.kube.node import AggregatePolicy, MetricCollectPolicy, NodeMetricSpec

CORE = 1_000_000
START_S = 1_780_000_000


@pytest.mark.parametrize(
    ("count", "percent", "index"),
    [(10, 50, 4), (10, 90, 8), (20, 95, 18), (20, 99, 18), (5, 50, 1), (5, 90, 3), (5, 95, 3), (5, 99, 3), (300, 50, 149),
     (300, 90, 269), (300, 95, 284), (300, 99, 296), (1, 50, 0), (1, 99, 0)],
)  # fmt: skip
def test_ranks_are_those_of_the_worked_examples_a1_to_a6(count: int, percent: int, index: int) -> None:
    assert rank(count, percent) == index


def samples(values: list[tuple[int, int, int]]) -> NodeUsageSeries:
    """(second, micro-cores, bytes)."""
    made = NodeUsageSeries()
    offsets, cpu, memory = zip(*((at * 1000, cpu, memory) for at, cpu, memory in values), strict=True)
    made.add(Series(offsets, cpu, memory), 0)
    return made


@pytest.mark.parametrize(("span_s", "window_s", "shown"), [(149, 300, False), (150, 300, True), (899, 1800, False), (900, 1800, True)])  # fmt: skip
def test_a_window_is_empty_until_its_samples_span_half_of_it_a9_to_a11(span_s: int, window_s: int, shown: bool) -> None:
    window = samples([(0, CORE, 1), (span_s, CORE, 1)]).window(span_s * 1000, window_s * 1000)
    assert bool(window) is shown


def test_amounts_are_truncated_a8() -> None:
    found = samples([(0, 900, 10), (1, 900, 11)]).mean(0, 1000)
    assert found == Usage(0, 10)


def test_a_mean_is_exact_where_upstream_loses_a_milli_core_to_binary_fractions_a7() -> None:
    assert samples([(0, 1_234_500, 0), (1, 1_235_500, 0)]).mean(0, 1000).cpu_milli == 1235


# -- against a plain reference


def summary(values: list[int]) -> list[int]:
    """By AGGREGATIONS, as the spec words it."""
    ordered = sorted(values)
    ranks = (max(int(np.float32(len(ordered)) * np.float32(percent / 100)) - 1, 0) for percent in PERCENTS)
    return [sum(ordered) // len(ordered), *(ordered[rank] for rank in ranks)]


@st.composite
def histories(draw: st.DrawFn) -> list[Report]:
    """Consecutive reports, some of them lost, in the order in which they were sent."""
    made, end_s = [], START_S
    for seq in range(1, draw(st.integers(1, 12)) + 1):
        seconds = draw(st.sampled_from([1, 7, 20, 60]))
        end_s += seconds
        if draw(st.booleans()) and seq > 1:
            continue
        offsets = tuple(range(1_000, seconds * 1_000 + 1, 1_000))
        amount = st.integers(0, 64 * CORE)
        cpu = draw(st.lists(amount, min_size=seconds, max_size=seconds))
        uids = draw(st.lists(st.sampled_from("abc"), unique=True))
        pods = tuple(PodSum(uid, sum(cpu[:3]), len(cpu[:3]), cpu[0], seq * 10, 2, 5) for uid in uids)
        system = draw(
            st.sampled_from([Series(), Series(offsets, tuple(cpu), ()), Series(offsets, tuple(cpu), tuple(cpu))])
        )
        node = Series(offsets, tuple(cpu), tuple(each * 3 for each in cpu))
        made.append(Report("n", "b", seq, end_s * SECOND, seconds * SECOND, node, system, pods=pods))
    return made


POLICY = Policy(aggregate_s=60, interval_s=30, windows_s=(60, 120))


@given(histories(), st.randoms(use_true_random=False))
def test_windows_equal_a_plain_reference_whatever_the_order_in_which_reports_come(
    reports: list[Report], random: Random
) -> None:
    windows = NodeWindows("n")
    order = list(reports)
    random.shuffle(order)
    for report in order:
        if not windows.contains(report):
            windows.add(report)
            if random.random() < 0.5:
                windows.forget(POLICY)
    found = windows.measure(POLICY)
    end_ns = max(report.at_ns for report in reports)
    assert found.at_ns == end_ns

    points = {
        name: [
            (report.begins_ns + offset * 10**6, series.cpu[i] if series.cpu else None, series.memory[i] if series.memory else None)
            for report in reports
            for series in [getattr(report, name)]
            for i, offset in enumerate(series.offset_ms)
        ]
        for name in ("node_usage", "system_usage")
    }  # fmt: skip

    def within(name: str, length_s: int) -> tuple[list[int], list[int], list[int]]:
        inside = [point for point in points[name] if end_ns - length_s * SECOND <= point[0] <= end_ns]
        return (
            [cpu for _, cpu, _ in inside if cpu is not None],
            [memory for _, _, memory in inside if memory is not None],
            [at for at, cpu, _ in inside if cpu is not None],
        )

    for name, usage in (("node_usage", found.usage), ("system_usage", found.system)):
        cpu, memory, _ = within(name, POLICY.aggregate_s)
        assert usage.cpu_milli == (sum(cpu) // len(cpu) // 1000 if cpu else None)
        assert usage.memory == (sum(memory) // len(memory) if memory else None)
    for window in found.windows:
        for name, usages in (("node_usage", window.node), ("system_usage", window.system)):
            cpu, memory, at = within(name, window.duration_s)
            if not at or 2 * (max(at) - min(at)) < window.duration_s * SECOND:
                assert usages == ()
                continue
            assert [each.cpu_milli for each in usages] == [each // 1000 for each in summary(cpu)]
            assert [each.memory for each in usages] == (summary(memory) if memory else [None] * 5)

    counted = [r for r in reports if r.begins_ns + r.interval_ns // 2 >= end_ns - POLICY.aggregate_s * SECOND]
    for uid in "abc":
        sums = [pod for report in counted for pod in report.pods if pod.uid == uid]
        assert (uid in found.pods) is bool(sums)
        if sums:
            cpu_milli = sum(pod.cpu_sum for pod in sums) // (sum(pod.cpu_count for pod in sums) * 1000)
            assert found.pods[uid].cpu_milli == cpu_milli


def test_windows_of_a_node_are_bounded_however_long_it_reports() -> None:
    windows = NodeWindows("n")
    offsets = tuple(range(1_000, 60_001, 1_000))
    series = Series(offsets, (CORE,) * 60, (1 << 30,) * 60)
    for minute in range(1, 200):
        at_ns = (START_S + minute * 60) * SECOND
        windows.add(Report("n", "b", minute, at_ns, 60 * SECOND, series, series, pods=(PodSum(str(minute), 1, 1, 1),)))
        windows.forget(Policy())
    assert len(windows._node) == 1801
    assert windows._node.rows.nbytes < 80_000
    assert len(windows._known) <= 31
    assert len(windows.measure(Policy()).pods) == 5


# -- the policy


def spec(**policy: object) -> NodeMetricSpec:
    return NodeMetricSpec(metric_collect_policy=MetricCollectPolicy(**policy))  # type: ignore[arg-type]


def test_the_defaults_hold_for_absent_fields() -> None:
    assert policy_of(None) == policy_of(NodeMetricSpec()) == policy_of(spec()) == Policy(300, 60, (300, 600, 1800))


def test_agents_keep_lower_bounds_k2() -> None:
    assert policy_of(spec(report_interval_seconds=20, aggregate_duration_seconds=0)) == Policy(60, 30)


def test_windows_are_those_of_the_spec_and_invalid_durations_are_skipped_k4() -> None:
    policy = AggregatePolicy(durations=("1m0s", "soon", "2h"))
    assert policy_of(spec(node_aggregate_policy=policy)).windows_s == (60, 7200)
