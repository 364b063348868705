"""Encoding of reports."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.agents.report import MAX_CPU, ApplicationSum, BadReport, PodSum, Report, Series, ZoneSum, decode, encode

GIB = 2**30
SECOND = 10**9

REPORT = Report(
    node="worker-1",
    boot="3f2a",
    seq=7,
    at_ns=1_800_000_000 * SECOND,
    interval_ns=15 * SECOND,
    node_usage=Series((1_000, 2_001), (3_500_000, 3_400_000), (26 * GIB, 26 * GIB)),
    system_usage=Series((1_000, 2_001), (500_000, 400_000), (6 * GIB, 6 * GIB)),
    best_effort_usage=Series((1_000, 2_001), (), (GIB, GIB)),
    pods=(PodSum("0f1c-22", 3_000_000, 2, 1_400_000, 4 * GIB, 2, 2 * GIB),),
)


def test_a_report_survives_encoding() -> None:
    assert decode(encode(REPORT), "worker-1") == REPORT


def test_the_schemas_version_comes_first() -> None:
    plain: list[Any] = msgspec.msgpack.decode(encode(REPORT))
    assert plain[0] == 1
    plain[0] = 2
    with pytest.raises(BadReport, match=r"report of node worker-1: schema: Invalid value 2; bring metrics ingest"):
        decode(msgspec.msgpack.encode(plain), "worker-1")


def test_a_later_release_may_add_fields_at_the_end() -> None:
    plain: list[Any] = msgspec.msgpack.decode(encode(REPORT))
    assert decode(msgspec.msgpack.encode([*plain, "more"]), "worker-1") == REPORT


def test_an_earlier_release_leaves_out_the_last_fields() -> None:
    plain: list[Any] = msgspec.msgpack.decode(encode(REPORT))
    assert decode(msgspec.msgpack.encode(plain[:10]), "worker-1") == REPORT


def test_a_pod_costs_little() -> None:
    more = tuple(
        PodSum(f"0f1c22aa-5b0e-4c6c-9a53-{n:012}", 3_000_000, 15, 200_000, 4 * GIB, 15, GIB) for n in range(100)
    )
    assert len(encode(replace(REPORT, pods=more))) < 100 * 75


POD = REPORT.pods[0]
APPLICATION = ApplicationSum("nginx", "koord-prod", "LS", 3_000, 2, GIB, 1)


@pytest.mark.parametrize(
    ("bad", "field", "reason"),
    [
        (replace(REPORT, node="worker-2"), "node", "another node than its topic"),
        (replace(REPORT, applications=(APPLICATION,) * 2), "applications", "holds nginx twice"),
        (
            replace(REPORT, applications=(replace(APPLICATION, cpu_count=0),)),
            "applications[nginx].cpu_sum",
            "more than its samples",
        ),
        (replace(REPORT, zones=(ZoneSum(3, memory_sum=1),)), "zones[3].memory_sum", "more than its samples"),
        (replace(REPORT, seq=0), "seq", ">= 1"),
        (replace(REPORT, interval_ns=0), "interval_ns", ">= 1"),
        (replace(REPORT, at_ns=SECOND), "interval_ns", "begins before 1970"),
        (replace(REPORT, node_usage=Series((1,), (-1,), (1,))), "node_usage.cpu[0]", ">= 0"),
        (replace(REPORT, node_usage=Series((1,), (MAX_CPU + 1,), (1,))), "node_usage.cpu[0]", "<="),
        (replace(REPORT, system_usage=Series((1, 2), (1,), ())), "system_usage.cpu", "has 1 values for 2 samples"),
        (
            replace(REPORT, system_usage=Series((2, 1), (), (1, 2))),
            "system_usage.offset_ms",
            "not in the order of time",
        ),
        (replace(REPORT, node_usage=Series((15_001,), (1,), (1,))), "node_usage.offset_ms", "after the interval's"),
        (replace(REPORT, pods=(POD, POD)), "pods", "holds 0f1c-22 twice"),
        (replace(REPORT, pods=(replace(POD, uid="a/b"),)), "pods[0].uid", "regex"),
        (replace(REPORT, pods=(replace(POD, cpu_sum=1),)), "pods[0f1c-22].cpu_sum", "is no sum of 2 samples"),
        (replace(REPORT, pods=(replace(POD, memory_count=0),)), "pods[0f1c-22].memory_sum", "no sum of 0 samples"),
    ],
)
def test_an_invalid_report_is_rejected_with_node_field_and_reason(bad: Report, field: str, reason: str) -> None:
    with pytest.raises(BadReport) as error:
        decode(encode(bad), "worker-1")
    found = error.value
    assert (found.node, found.field.replace("[...]", "[0]")) == ("worker-1", field)
    assert reason in found.reason


@pytest.mark.parametrize("data", [b"", b"\x93", b"{}", b"\xff" * 20, b"\xa1x", b"\xc1"])
def test_bytes_that_are_no_report_are_rejected(data: bytes) -> None:
    with pytest.raises(BadReport, match="report of node worker-1: "):
        decode(data, "worker-1")


def test_a_fraction_is_not_an_amount() -> None:
    plain: list[Any] = msgspec.msgpack.decode(encode(REPORT))
    plain[6][1][1] = 1.5
    with pytest.raises(BadReport, match=r"node_usage.cpu\[.*\]: Expected `int`, got `float`"):
        decode(msgspec.msgpack.encode(plain), "worker-1")


def test_a_message_above_the_size_limit_is_not_decoded() -> None:
    with pytest.raises(BadReport, match="at most 1048576 are taken"):
        decode(b"\x91" * (2**20 + 1), "worker-1")


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
THINGS = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(
    st.binary()
    | st.builds(lambda rest: msgspec.msgpack.encode([1, "worker-1", "b", 1, 2**60, *rest]), st.lists(THINGS))
)
def test_foreign_messages_are_only_rejected(data: bytes) -> None:
    with contextlib.suppress(BadReport):
        decode(data, "worker-1")
