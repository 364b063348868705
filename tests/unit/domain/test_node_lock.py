"""Locks of nodes for device plugins. Source: spec/scheduler-workloads.md 3.9."""

import pytest

from shared.domain.node_lock import (
    DSMLU_LOCK,
    HAMI_LOCK,
    LOCK_TIMEOUT_NS,
    BadLock,
    NodeLock,
    lock_text,
    node_lock_of,
    read_lock,
)
from shared.kube.instants import SECOND

EIGHT_NS = 1_777_622_400 * SECOND  # 2026-05-01T08:00:00Z


def test_a_lock_names_its_second_and_its_pod() -> None:
    text = lock_text("shop/web-0", EIGHT_NS + SECOND // 2)
    assert text == "2026-05-01T08:00:00Z,shop,web-0"
    assert read_lock(text) == NodeLock(EIGHT_NS, "shop/web-0")


def test_locks_of_other_schedulers_have_offsets_and_fractions() -> None:
    assert read_lock("2026-05-01T10:00:00.5+02:00,a,b") == NodeLock(EIGHT_NS + SECOND // 2, "a/b")


@pytest.mark.parametrize("text", ["", "{}", "2026-05-01T08:00:00Z", "2026-05-01T08:00:00Z,a,b,c", "yesterday,a,b"])
def test_other_texts_are_no_locks(text: str) -> None:
    with pytest.raises(BadLock, match="is no lock"):
        read_lock(text)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_lock_is_stale_when_its_time_is_more_than_five_minutes_away(sign: int) -> None:
    lock = NodeLock(EIGHT_NS, "a/b")
    assert not lock.is_stale(EIGHT_NS + sign * LOCK_TIMEOUT_NS)
    assert lock.is_stale(EIGHT_NS + sign * (LOCK_TIMEOUT_NS + 1))


def test_pods_of_two_vendors_need_a_lock() -> None:
    assert node_lock_of({"CAMBRICON_DSMLU_PROFILE": "0_30_32"}) == DSMLU_LOCK
    assert node_lock_of({"metax-tech.com/gpu-devices-allocated": "[]"}) == HAMI_LOCK
    assert node_lock_of({"huawei.com/npu-core": "0", "predicate-time": "1"}) == ""
