"""The worked examples of spec/scheduler-core.md 3.8, by their number there."""

from typing import Any

import pytest

from services.scheduler.plugins.load_aware_scheduling.args import read_args
from services.scheduler.plugins.load_aware_scheduling.pod_estimate import estimate_pod
from shared.kube.instants import SECOND
from tests.unit.scheduler.load_aware_objects import (
    GIB,
    NOW,
    Amounts,
    added,
    assign,
    expecting,
    filtered,
    metric,
    new_load_cache,
    node,
    pod,
    reported,
    scored,
    usage,
)

BATCH = {"kubernetes.io/batch-cpu": 4000, "kubernetes.io/batch-memory": 8 * GIB}
CUSTOM = {"scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu":150}'}


@pytest.mark.parametrize(
    ("requests", "limits", "priority", "custom", "cpu", "memory"),
    [
        pytest.param(
            {"cpu": 1000, "memory": GIB}, {"cpu": 2000, "memory": 2 * GIB}, 9500, None, 1700, 1503238554, id="1 limits"
        ),
        pytest.param(None, None, 9500, None, 250, 209715200, id="2 nothing stated"),
        pytest.param(BATCH, None, 5500, None, 3400, 6012954214, id="2 batch"),
        pytest.param(None, None, 7500, None, 0, 0, id="2 mid"),
        pytest.param({"cpu": 2000}, None, 3500, None, 0, 0, id="2 free"),
        pytest.param({"cpu": 1000}, None, 9500, CUSTOM, 1500, 209715200, id="2 custom factor without a limit"),
        pytest.param({"cpu": 1000}, {"cpu": 1000}, 9500, CUSTOM, 1000, 209715200, id="2 custom factor cut by a limit"),
    ],
)
def test_a_pod_is_expected_to_use(
    requests: Amounts | None,
    limits: Amounts | None,
    priority: int,
    custom: dict[str, str] | None,
    cpu: int,
    memory: int,
) -> None:
    args = read_args({"allowCustomizeEstimation": True})
    pod_amounts = pod(requests=requests, limits=limits, priority=priority, annotations=custom)
    assert estimate_pod(pod_amounts, args) == {"cpu": cpu, "memory": memory}


@pytest.mark.parametrize(
    ("measured", "assigned_s", "deadline_s", "delta"),
    [
        pytest.param((1000, GIB), -61, None, (0, 0), id="3 contained in the report"),
        pytest.param((1000, GIB), -60, None, (0, 0), id="3 an interval before, exactly"),
        pytest.param((1000, GIB), -30, None, (700, 429496730), id="3 within the interval"),
        pytest.param((1900, GIB), -30, None, (0, 429496730), id="3 never negative"),
        pytest.param(None, -3600, None, (1700, 1503238554), id="3 not in the report"),
        pytest.param((1000, GIB), -300, 5, (700, 429496730), id="3 its window ends after the report"),
        pytest.param((1000, GIB), -300, 0, (0, 0), id="3 its window ends with the report"),
    ],
)
def test_a_pod_adds_what_the_report_cannot_contain_yet(
    measured: tuple[int, int] | None, assigned_s: int, deadline_s: int | None, delta: tuple[int, int]
) -> None:
    window = {} if deadline_s is None else {"estimatedSecondsAfterPodScheduled": deadline_s - assigned_s}
    load_cache = new_load_cache(**window)
    pods = [reported("p", *measured)] if measured else []
    load_cache.set_metric(0, metric(usage(8000), *pods))
    assign(load_cache, expecting(1700, 1503238554), NOW + assigned_s * SECOND)
    assert added(load_cache, "node_delta") == delta


def example_4(**args: Any) -> Any:
    """A node of 16 cores and 32 GiB that uses (8000, 10 GiB), and a pod that adds (700, 429496730)."""
    load_cache = new_load_cache(**args)
    load_cache.set_node(0, node())
    load_cache.set_metric(0, metric(usage(8000, 10 * GIB), reported("p", 1000, GIB)))
    assign(load_cache, expecting(1700, 1503238554), NOW - 30 * SECOND)
    return load_cache


@pytest.mark.parametrize(
    ("incoming_cpu", "reason"),
    [
        pytest.param(1700, "", id="4 65.0 percent"),
        pytest.param(1750, "", id="4 65.3 cycles to 65"),
        pytest.param(1780, "node(s) cpu usage exceed threshold", id="4 65.5 cycles to 66"),
    ],
)
def test_a_node_is_refused_beyond_its_threshold(incoming_cpu: int, reason: str) -> None:
    load_cache = example_4(usageThresholds={"cpu": 65, "memory": 95})
    assert filtered(load_cache, expecting(incoming_cpu, 1503238554, "incoming")) == reason


@pytest.mark.parametrize(
    ("args", "incoming_cpu", "score"),
    [
        pytest.param({}, 1700, 49, id="5 equal weights"),
        pytest.param(
            {"resourceWeights": {"cpu": 1, "memory": 1}, "dominantResourceWeight": 1}, 1700, 44, id="5 dominant 1"
        ),
        pytest.param(
            {"resourceWeights": {"cpu": 2, "memory": 1}, "dominantResourceWeight": 3}, 1700, 39, id="5 dominant 3"
        ),
        pytest.param({}, 8300, 31, id="5 cpu used up"),
    ],
)
def test_a_node_is_scored_by_the_room_left(args: dict[str, Any], incoming_cpu: int, score: int) -> None:
    assert scored(example_4(**args), expecting(incoming_cpu, 1503238554, "incoming")) == score


@pytest.mark.parametrize(
    ("incoming_cpu", "reason"),
    [
        pytest.param(850, "", id="6 37.8 cycles to 38"),
        pytest.param(1300, "node(s) cpu usage exceed threshold", id="6 40.6 cycles to 41"),
    ],
)
def test_prod_pods_are_compared_with_what_prod_pods_use(incoming_cpu: int, reason: str) -> None:
    load_cache = new_load_cache(prodUsageThresholds={"cpu": 40}, prodUsageIncludeSys=True)
    load_cache.set_node(0, node())
    pods = (reported("p1", 3000, 0), reported("p2", 1000, 0, "koord-mid"), reported("p3", 4000, 0, "koord-batch"))
    load_cache.set_metric(0, metric(usage(8500), *pods, system=usage(500)))
    for name, cpu, priority in (("p1", 2500, 9500), ("p2", 1700, 9500), ("p3", 3400, 5500)):
        assign(load_cache, expecting(cpu, 1, name, priority=priority), NOW - 3600 * SECOND)
    report = load_cache.report(0)
    assert report is not None
    assert (report.system[0] + added(load_cache, "prod_usage")[0], added(load_cache, "prod_delta")[0]) == (3500, 1700)
    assert filtered(load_cache, expecting(incoming_cpu, 1, "incoming")) == reason


@pytest.mark.parametrize(
    ("window", "reported_windows", "used"),
    [
        pytest.param("5m", True, 9700, id="7 the window asked for"),
        pytest.param("0s", True, 7700, id="7 the longest window"),
        pytest.param("10m", True, 6000, id="7 a window not reported"),
        pytest.param("0s", False, 8700, id="7 no windows, any will do"),
        pytest.param("5m", False, 6000, id="7 no windows, one asked for"),
    ],
)
def test_a_percentile_is_taken_from_its_window(window: str, reported_windows: bool, used: int) -> None:
    load_cache = new_load_cache(
        aggregated={"usageThresholds": {"cpu": 65}, "usageAggregationType": "p95", "usageAggregatedDuration": window}
    )
    load_cache.set_node(0, node())
    windows = {"5m0s": {"p95": usage(9000)}, "15m0s": {"p95": usage(7000)}} if reported_windows else None
    load_cache.set_metric(0, metric(usage(8000), reported("p", 1000, 0), reported("q", 4300, 0), windows=windows))
    assign(load_cache, expecting(1700, 1), NOW - 30 * SECOND)
    assign(load_cache, expecting(4300, 1, "q"), NOW - 3600 * SECOND)
    assert added(load_cache, "node_delta")[0] == 700
    assert added(load_cache, "estimated")[0] == 6000
    edge = 65 * 160 + 79 - used  # 65.49 percent of 16000 milli-cores, which still rounds to 65
    assert filtered(load_cache, expecting(edge, 1, "incoming")) == ""
    assert filtered(load_cache, expecting(edge + 1, 1, "incoming")) == "node(s) cpu aggregated usage exceed threshold"


@pytest.mark.parametrize(
    ("age_ns", "expired"),
    [pytest.param(179_900_000_000, False, id="8 179.9 s"), pytest.param(180 * SECOND, True, id="8 180 s")],
)
def test_a_report_expires_at_its_limit(age_ns: int, expired: bool) -> None:
    load_cache = new_load_cache()
    load_cache.set_node(0, node())
    load_cache.set_metric(0, metric(usage(1000), at_ns=NOW - age_ns))
    assert (filtered(load_cache, pod()) == "node(s) nodeMetric expired") is expired
    assert (scored(load_cache, pod()) == 0) is expired
