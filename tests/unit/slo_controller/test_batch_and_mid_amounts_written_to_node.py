"""The amounts written to a node, by the worked examples of spec/slo-controller.md 3.4, 3.5 and 4.8."""

import json
from typing import Any

import pytest

from services.slo_controller.overcommit import batch_resources
from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import (
    ORIGIN,
    THIRD_PARTIES,
    amplified,
    extended_resources,
    origin_annotation,
)
from services.slo_controller.overcommit.batch_resources import BatchResources, FormulaTerms
from services.slo_controller.overcommit.change_threshold import any_changed, differs
from services.slo_controller.overcommit.report_expiry import is_degraded
from services.slo_controller.overcommit.usage_sums import PodSums
from services.slo_controller.state.usage_report import NO_REPORT, UsageReport
from shared.domain.cpu_memory import ZERO
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.quantity import NANO, nanos
from shared.kube.slo_config import ColocationStrategy, Hysteresis, OvercommitLimits

G = 10**9
OVERCOMMITTED = BatchResources(25_000, 33 * G * NANO, FormulaTerms(ZERO, ZERO, ZERO, ZERO, PodSums()), {})


@pytest.mark.parametrize(
    ("id_", "count", "ratio", "expected"),
    [
        ("AM1", 25_000, 1.2, 30_000), ("AM2", 10_001, 1.05, 10_502), ("AM3", 25_000, 1.0, 25_000),
        ("AM4", 333, 1.33, 443), ("AM5", 7, 1.15, 9),
    ],
)  # fmt: skip
def test_a_faster_cpu_has_more_batch_cpu(id_: str, count: int, ratio: float, expected: int) -> None:
    assert amplified(count, ratio) == expected, id_


def third(priority: str = "koord-batch", **resources: str) -> dict[str, Any]:
    return {
        "name": "x",
        "priority": priority,
        "resources": {f"kubernetes.io/batch-{k}": v for k, v in resources.items()},
    }


@pytest.mark.parametrize(
    ("id_", "allocations", "cpu", "memory"),
    [
        ("TP1", [], "25k", "33G"),
        ("TP2", [third(cpu="10000", memory="10G")], "15k", "23G"),
        ("TP3", [third(cpu="30000", memory="40G")], "0", "0"),
        ("TP4", [third(cpu="5000"), third(cpu="7000")], "13k", "33G"),
        ("TP5", [third("koord-mid", cpu="5000")], "25k", "33G"),
    ],
)
def test_allocations_of_third_parties_are_subtracted(id_: str, allocations: list[Any], cpu: str, memory: str) -> None:
    node = Node(metadata=Metadata(name="n", annotations={THIRD_PARTIES: json.dumps({"allocations": allocations})}))
    found = extended_resources(node, OVERCOMMITTED, None, None)
    assert found.amounts[batch_resources.CPU] == nanos(cpu) // NANO, id_
    assert found.amounts[batch_resources.MEMORY] == nanos(memory) // NANO, id_
    text = origin_annotation(node.metadata.annotations, *found.origin)
    assert text is not None
    origin = json.loads(text)["resources"]
    assert {name: nanos(size) for name, size in origin.items()} == {
        batch_resources.CPU: nanos("25k"),
        batch_resources.MEMORY: nanos("33G"),
    }


def test_tp6_a_degraded_node_has_none_and_its_origin_is_zero() -> None:
    annotations = {ORIGIN: "nope"}
    found = extended_resources(Node(metadata=Metadata(name="n", annotations=annotations)), None, None, None)
    assert set(found.amounts.values()) == {None}
    text = origin_annotation(annotations, *found.origin)
    assert json.loads(text or "") == {"resources": {batch_resources.CPU: "0", batch_resources.MEMORY: "0"}}
    assert origin_annotation(None, 1, 1) is None, "Q7"


def test_an_unreadable_annotation_of_third_parties_leaves_the_whole_amount_and_is_reported() -> None:
    found = extended_resources(
        Node(metadata=Metadata(name="n", annotations={THIRD_PARTIES: "{"})), OVERCOMMITTED, None, None
    )
    assert found.amounts[batch_resources.CPU] == 25_000
    assert THIRD_PARTIES in found.problem


@pytest.mark.parametrize(
    ("id_", "old", "new", "expected"),
    [
        ("D1", "10000", "11000", False), ("D2", "10000", "11001", True), ("D3", "10000", "9000", False),
        ("D3 below", "10000", "8999", True), ("D4", "0", "1", True), ("D4 zero", "0", "0", False),
        ("D5", None, "0", True), ("D6", "10Gi", "11Gi", False), ("D7", "1200", "1100", False), ("gone", "1", None, True),
        ("never", None, None, False),
    ],
)  # fmt: skip
def test_an_amount_is_written_when_it_changed_by_more_than_the_threshold(
    id_: str, old: str | None, new: str | None, expected: bool
) -> None:
    before, after = ({"x": nanos(size)} if size is not None else {} for size in (old, new))
    assert any_changed(before, after, ("x",), ColocationStrategy(resource_diff_threshold=0.1)) is expected, id_


def test_a_rise_and_a_fall_may_have_separate_thresholds() -> None:
    slow_up = Hysteresis(rise_percent=30, fall_percent=0)
    assert [differs(10_000 * NANO, size * NANO, 0.1, slow_up) for size in (12_999, 13_001, 10_000, 9_999)] == [
        False, True, False, True,
    ]  # fmt: skip
    strategy = ColocationStrategy(resource_diff_threshold=0.1, koordstream=OvercommitLimits(hysteresis=slow_up))
    assert not any_changed({"x": 100 * NANO}, {"x": 120 * NANO}, ("x",), strategy)


@pytest.mark.parametrize(
    ("id_", "age_ns", "expected"),
    [
        ("T1", (14 * 60 + 59) * SECOND, False), ("T2", 15 * 60 * SECOND, False), ("T3", 15 * 60 * SECOND + 10**6, True),
    ],
)  # fmt: skip
def test_expired_reports_do_not_count(id_: str, age_ns: int, expected: bool) -> None:
    now_ns = 1_800_000_000 * SECOND
    measured = UsageReport(at_ns=now_ns - age_ns, has_node=True)
    assert is_degraded(measured, ColocationStrategy(degrade_time_minutes=15), now_ns) is expected, id_


def test_t4_t5_without_a_time_nothing_counts_and_a_node_may_have_more_of_it() -> None:
    now_ns = 1_800_000_000 * SECOND
    assert is_degraded(NO_REPORT, ColocationStrategy(), now_ns)
    assert is_degraded(UsageReport(has_node=True), ColocationStrategy(), now_ns), "T4"
    old = UsageReport(at_ns=now_ns - 20 * 60 * SECOND, has_node=True)
    assert not is_degraded(old, ColocationStrategy(degrade_time_minutes=30), now_ns), "T5"
