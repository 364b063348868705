"""Decisions about inventories: what is recorded of a change, and what is ignored."""

from typing import Any

import pytest
from msgspec.structs import replace

from services.device_discovery.decide_inventory import losses
from services.device_discovery.state import allocated_devices
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from shared.agents.device_inventory import (
    BadInventory,
    DeviceCondition,
    DeviceFound,
    Partition,
    VirtualFunction,
    VirtualFunctionGroup,
)
from shared.events import Draft, Event
from shared.events.devices import (
    DeviceAppeared,
    DeviceChanged,
    DeviceDisappeared,
    DeviceHealthChanged,
    DeviceUser,
    NodeDevicesReported,
)
from shared.events.intents import ObjectDesired
from shared.kube.system_annotations import DEVICE_ALLOCATED
from tests.support.discovery_log import BEGAN, DiscoveryLog, gpu, sick

HALF = '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50"}}]}'


def started(*devices: DeviceFound, **content: Any) -> DiscoveryLog:
    """A node that has reported its devices."""
    log = DiscoveryLog()
    log.node()
    log.report(*devices, **content)
    return log


def lost(events: list[Event]) -> list[str]:
    """Names the events that are recorded beyond the node's limit."""
    return names([draft.event for draft in losses([Draft(event) for event in events])])


def names(events: list[Event]) -> list[str]:
    return [f"{type(event).__name__} {event.key}" for event in events]


def test_a_first_inventory_records_each_device_and_the_node() -> None:
    log = DiscoveryLog()
    log.node()
    events = log.report(gpu(1), gpu(0), labels={"node.koordinator.sh/gpu-model": "H100"})
    assert names(events) == ["DeviceAppeared n/gpu/0", "DeviceAppeared n/gpu/1", "NodeDevicesReported n"]
    assert log.report(gpu(0), gpu(1), labels={"node.koordinator.sh/gpu-model": "H100"}) == []


def test_a_node_without_devices_leaves_no_event() -> None:
    assert started().records[-1].context == "cluster"


def test_an_allocation_means_the_same_cards_here_and_to_the_scheduler() -> None:
    """A missing minor is 0 for both; what cannot be read is no card for both."""
    for text in ('{"gpu":[{}]}', '{"gpu":[{"minor":2},{"minor":1}],"rdma":null}', '{"gpu":[{"minor":"1"}]}', "{", HALF):
        read = allocation_of({DEVICE_ALLOCATED: text})
        assert allocated_devices(text) == tuple(sorted({f"{each.type}/{each.minor}" for each in read})), text
    assert allocated_devices('{"gpu":[{}]}') == ("gpu/0",)


def test_a_missing_card_has_disappeared_with_the_pods_that_had_it_and_appears_again() -> None:
    log = started(gpu(0), gpu(1))
    log.pod("train", HALF)
    log.pod("ended", HALF)
    log.no_pod("ended")
    log.pod("other", HALF.replace("1", "0", 1))
    (gone,) = log.report(gpu(0), at_s=720)
    assert isinstance(gone, DeviceDisappeared)
    assert (gone.why, gone.at_ns, gone.found) == ("missing", BEGAN + 720 * 10**9, gpu(1))
    assert gone.pods == (DeviceUser("d/train", "uid-train"),)
    assert log.report(gpu(0), at_s=730) == []
    assert names(log.report(gpu(0), gpu(1), at_s=740)) == ["DeviceAppeared n/gpu/1"]


def test_a_pod_whose_binding_is_recorded_after_its_end_has_no_card() -> None:
    log = started(gpu(0), gpu(1))
    log.pod("gone", HALF)
    log.no_pod("gone")
    log.bound("gone", HALF)
    (gone,) = log.report(gpu(0), at_s=1)
    assert isinstance(gone, DeviceDisappeared)
    assert gone.pods == ()


def test_a_card_with_another_id_is_another_card() -> None:
    log = started(gpu(0))
    gone, new = log.report(gpu(0, id="GPU-new"), at_s=1)
    assert isinstance(gone, DeviceDisappeared)
    assert isinstance(new, DeviceAppeared)
    assert (gone.why, gone.found.id, new.found.id) == ("replaced", "GPU-0", "GPU-new")


def test_health_changes_with_reason_and_pods_and_keeps_the_time_of_each_transition() -> None:
    log = started(gpu(1))
    log.pod("train", HALF)
    (bad,) = log.report(sick(1), at_s=5)
    assert isinstance(bad, DeviceHealthChanged)
    assert (bad.reason, bad.health_since_ns, bad.since_ns) == (
        "Xid79",
        BEGAN + 5 * 10**9,
        {"Healthy": BEGAN + 5 * 10**9},
    )
    assert bad.pods == (DeviceUser("d/train", "uid-train"),)
    (worse,) = log.report(sick(1, "Xid48"), at_s=9)
    assert isinstance(worse, DeviceChanged)
    assert (worse.changed, worse.since_ns) == (("conditions",), {"Healthy": BEGAN + 5 * 10**9})
    assert worse.health_since_ns == BEGAN + 5 * 10**9
    (good,) = log.report(gpu(1), at_s=20)
    assert isinstance(good, DeviceHealthChanged)
    assert good.found.health


def test_other_fields_are_named() -> None:
    log = started(gpu(0))
    (event,) = log.report(gpu(0, numa=1, labels={"link": "ib"}), at_s=1)
    assert isinstance(event, DeviceChanged)
    assert event.changed == ("labels", "numa")


def test_devices_that_could_not_be_read_stay_and_are_unhealthy() -> None:
    log = started(gpu(0), DeviceFound("rdma", 0, True, "mlx5_0"))
    bad, report, notice = log.report(DeviceFound("rdma", 0, True, "mlx5_0"), at_s=1, unread={"gpu": "NVML hangs"})
    assert isinstance(bad, DeviceHealthChanged)
    assert isinstance(report, NodeDevicesReported)
    assert (bad.device, bad.reason, bad.message) == ("n/gpu/0", "InventoryUnread", "NVML hangs")
    assert report.unread == {"gpu": "NVML hangs"}
    assert isinstance(notice, ObjectDesired)
    assert notice.body is not None
    assert notice.body["reason"] == "DeviceInventoryIgnored"
    assert log.report(DeviceFound("rdma", 0, True, "mlx5_0"), at_s=2, unread={"gpu": "NVML hangs"}) == []
    good, _, ended = log.report(gpu(0), DeviceFound("rdma", 0, True, "mlx5_0"), at_s=3)
    assert isinstance(good, DeviceHealthChanged)
    assert good.found == gpu(0)
    assert isinstance(ended, ObjectDesired)
    assert ended.body is not None
    assert ended.body["type"] == "Normal"


@pytest.mark.parametrize(
    ("devices", "part", "reason"),
    [
        ((gpu(0), gpu(0, id="x")), "gpu/0", "2 devices have this minor"),
        ((gpu(0), gpu(1, id="GPU-0")), "gpu/1", "2 devices have the id GPU-0"),
        ((gpu(-1),), "gpu/-1", "minor -1 is not in 0 to 4095"),
        ((gpu(0, numa=4_096),), "gpu/0", "NUMA node 4096 is not in -1 to 1023"),
        ((gpu(0, socket=-2),), "gpu/0", "socket -2 is not in -1 to 1023"),
        ((gpu(0, resources={"koordinator.sh/gpu-core": -1}),), "gpu/0", "koordinator.sh/gpu-core is -1; a device has 0 to 100"),
        ((gpu(0, resources={"koordinator.sh/gpu-core": 101}),), "gpu/0", "koordinator.sh/gpu-core is 101; a device has 0 to 100"),
        ((gpu(0, resources={"koordinator.sh/gpu-memory": 1 << 45}),), "gpu/0", f"koordinator.sh/gpu-memory is {1 << 45}; a device has 0 to {1 << 44}"),
        ((gpu(0, resources={"huawei.com/npu-core": 1 << 40}),), "gpu/0", f"huawei.com/npu-core is {1 << 40}; a device has 0 to {1 << 31}"),
        ((gpu(0, resources={"a b": 1}),), "gpu/0", "'a b' is no name of a resource"),
        ((gpu(0, conditions=(DeviceCondition("Healthy", "True", "a"),) * 2),), "gpu/0", "two conditions have one type"),
        ((gpu(0, virtual_functions=(VirtualFunctionGroup((VirtualFunction("0:1"),) * 2),)),), "gpu/0", "two virtual functions have one bus id"),
    ],
)  # fmt: skip
def test_devices_that_cannot_be_true_are_ignored_and_shown(
    devices: tuple[DeviceFound, ...], part: str, reason: str
) -> None:
    log = DiscoveryLog()
    log.node()
    events = log.report(*devices, gpu(7))
    report = next(event for event in events if isinstance(event, NodeDevicesReported))
    assert report.ignored[part] == reason
    assert names(events)[0] == "DeviceAppeared n/gpu/7"
    notice = events[-1]
    assert isinstance(notice, ObjectDesired)
    assert notice.body is not None
    assert reason in notice.body["message"]


def test_a_recorded_device_that_becomes_absurd_stays_and_is_unhealthy() -> None:
    log = started(gpu(0), gpu(1))
    bad, _, _ = log.report(gpu(0), gpu(1, resources={"koordinator.sh/gpu-core": 900}), at_s=1)
    assert isinstance(bad, DeviceHealthChanged)
    assert (bad.device, bad.reason, bad.found.resources) == ("n/gpu/1", "InventoryIgnored", gpu(1).resources)


def test_foreign_and_invalid_labels_and_partitions_are_ignored() -> None:
    log = DiscoveryLog()
    log.node()
    events = log.report(
        gpu(0),
        gpu(1),
        labels={"node-role.kubernetes.io/x": "", "node.koordinator.sh/gpu-model": "NVIDIA H100", "node.koordinator.sh/gpu-vendor": "nvidia"},
        partitions={"2": (Partition((0, 1), "NVLink", "400Gi"), Partition((0, 7))), "1": (Partition((0, 1)), Partition((0,), "", "fast"))},
    )  # fmt: skip
    report = next(event for event in events if isinstance(event, NodeDevicesReported))
    assert report.labels == {"node.koordinator.sh/gpu-vendor": "nvidia"}
    assert report.partitions == {"2": (Partition((0, 1), "NVLink", "400Gi"),)}
    assert sorted(report.ignored) == [
        "label node-role.kubernetes.io/x",
        "label node.koordinator.sh/gpu-model",
        "partitions of 1",
        "partitions of 2",
    ]


def test_many_reasons_are_counted() -> None:
    log = DiscoveryLog()
    log.node()
    events = log.report(*(gpu(minor, numa=5_000) for minor in range(100)))
    report = next(event for event in events if isinstance(event, NodeDevicesReported))
    assert (len(report.ignored), report.ignored["further"]) == (32, "69 parts more are ignored")


def test_a_node_may_not_have_ever_more_devices() -> None:
    log = started(*(gpu(minor) for minor in range(1_000)))
    for first in (1_000, 2_000):
        log.report(*(gpu(minor) for minor in range(first, first + 1_000)), at_s=first)
    assert len(log.state.devices["n"]) == 2_048
    assert log.state.reported["n"].ignored["further"].startswith("921 parts more")


def test_inventories_from_other_times_are_rejected() -> None:
    log = started(gpu(0))
    log.report(gpu(0), gpu(1), at_s=60)
    with pytest.raises(BadInventory, match="before the newest recorded change"):
        log.report(gpu(0), at_s=30, boot="earlier")
    with pytest.raises(BadInventory, match="before the newest recorded change"):
        log.report(gpu(0), at_s=70, seq=1)
    assert names(log.report(gpu(0), at_s=50)) == ["DeviceDisappeared n/gpu/1"], "the node's clock was set back"


def test_only_losses_are_recorded_at_once() -> None:
    log = started(gpu(0), gpu(1), gpu(2))
    events = log.report(sick(0), gpu(2, numa=1), gpu(3), at_s=1)
    assert lost(events) == ["DeviceHealthChanged n/gpu/0", "DeviceDisappeared n/gpu/1"]
    events = log.report(gpu(0), gpu(2, numa=1, id="x"), at_s=2)
    assert len(events) == 4
    assert lost(events) == ["DeviceDisappeared n/gpu/3"]


def test_a_healthy_card_is_lost_at_once_when_an_unhealthy_one_has_its_place() -> None:
    """Simulated seed 500481: pods got the card until the node's limit let the change be recorded."""
    log = started(gpu(0), gpu(1))
    events = log.report(replace(sick(0), id="other"), gpu(1), sick(2), at_s=1)
    assert lost(events) == ["DeviceDisappeared n/gpu/0", "DeviceAppeared n/gpu/0"]
    events = log.report(replace(sick(0), id="third"), gpu(1), at_s=2)
    assert lost(events) == ["DeviceDisappeared n/gpu/2"], "the card before it was unhealthy as well"
