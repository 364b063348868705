"""Columns hold the usage of pods exactly, whatever the amounts are."""

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from services.slo_controller.state.pod_usage_columns import NO_PODS, PRIORITIES, PodUsageColumns, pod_usage_columns
from shared.domain.cpu_memory import Amount
from shared.kube.quantity import NANO

LARGEST = 2**63 - 1
AMOUNTS = st.integers(-LARGEST * NANO, LARGEST * NANO) | st.integers(0, 1000 * NANO).map(lambda size: size * NANO)
USAGES = st.dictionaries(st.text(), st.tuples(AMOUNTS, AMOUNTS, st.sampled_from(PRIORITIES)))


@given(USAGES)
@example({"d/fraction-of-a-byte": (1, NANO + 1, ""), "d/whole": (1, NANO, "")})
@example({"d/largest": (LARGEST, LARGEST * NANO, "koord-batch"), "d/more-cpu": (LARGEST + 1, 0, "")})
def test_usage_is_the_same_after_it_was_stored(usages: dict[str, tuple[int, int, str]]) -> None:
    stored = msgspec.json.encode(pod_usage_columns(usages))
    columns = msgspec.json.decode(stored, type=PodUsageColumns)
    assert columns == pod_usage_columns(usages)
    assert columns.by_key() == usages
    assert list(columns.by_key()) == list(usages)
    assert {key: columns.get(key) for key in usages} == {
        key: Amount(cpu, size) for key, (cpu, size, _) in usages.items()
    }


def test_an_amount_that_does_not_fit_affects_its_column_alone() -> None:
    columns = pod_usage_columns({"d/a": (2 * NANO, NANO // 2, ""), "d/b": (NANO, NANO, "")})
    assert isinstance(columns.cpu, bytes)
    assert columns.memory == (NANO // 2, NANO)


def test_a_pod_that_is_not_named_has_no_usage() -> None:
    assert NO_PODS.get("d/a") is None
    assert pod_usage_columns({"d/b": (0, 0, "")}).get("d/a") is None


def test_an_unknown_class_counts_as_none() -> None:
    assert pod_usage_columns({"d/a": (1, NANO, "gold")}).by_key() == {"d/a": (1, NANO, "")}
