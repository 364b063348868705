"""The inventory of a node: files of device daemons, NVIDIA's cards, RDMA cards and FPGAs together."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from services.node_agent import feature_gates
from services.node_agent.collectors.gpu_usage import GpuUsage
from services.node_agent.collectors.usage_sample_types import UsageSnapshot
from services.node_agent.devices.device_collector import DeviceCollector
from services.node_agent.devices.device_reporter import DeviceReporter
from services.node_agent.devices.nvidia_watch import Deadlines, NvidiaWatch
from services.node_agent.devices.nvml_process_messages import CardsListed, NvidiaCard, encode
from services.node_agent.devices.pci_bus import PciBus
from services.node_agent.devices.xpu_device_infos import BadDeviceInfo, read_device_infos
from services.node_agent.report_builder import ReportBuilder, Sender
from services.node_agent.transport.outbox import Message, Outbox
from shared.agents import device_inventory
from shared.agents.device_inventory import DeviceCondition, DeviceFound, Devices, Partition
from shared.agents.report import GpuSum
from shared.agents.subjects import INVENTORY
from shared.kube.instants import SECOND
from tests.support import sysfs_trees
from tests.support.sysfs_trees import BELOW_SWITCH

GIB = 2**30
NPU: dict[str, Any] = {
    "vendor": "huawei",
    "model": "Ascend-910B3",
    "uuid": "npu-0-0",
    "minor": "0",
    "resources": {"koordinator.sh/gpu-memory": "64Gi", "huawei.com/npu-core": "20", "gpu-core": "100"},
    "topology": {
        "p2pLinks": [{"peerMinor": "1", "type": "HCCS"}],
        "mustHonorPartition": True,
        "socketID": "-1",
        "nodeID": "1",
        "pcieID": "pci0000:3a",
        "busID": "0000:3b:00.0",
    },
    "status": {"healthy": True},
}
PEER = NPU | {
    "uuid": "npu-1-1",
    "minor": "1",
    "topology": {"p2pLinks": [{"peerMinor": "0", "type": "HCCS"}, {"peerMinor": "7", "type": "HCCS"}]},
    "status": {"healthy": False, "errCode": "chip error", "errMessage": "NPU index 1 has 2 chip faults"},
}


def infos(folder: Path, *devices: Any, name: str = "ic-device") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(devices))
    return folder


def collector(folder: Path, *gates: str, nvidia: NvidiaWatch | None = None) -> DeviceCollector:
    sys, on = folder / "sys", feature_gates.parse(",".join(f"{name}=true" for name in gates))
    return DeviceCollector(sys, folder / "infos", on, bus=PciBus(sys), nvidia=nvidia)


def nvidia_with(folder: Path, *cards: NvidiaCard) -> NvidiaWatch:
    """The watch of a library that has listed these cards once."""
    (folder / "lines").write_bytes(encode(CardsListed("550.54.15", cards)))
    watch = NvidiaWatch(("cat", str(folder / "lines")), PciBus(folder / "sys"), Deadlines(retry_s=600))

    async def run() -> None:
        task = asyncio.create_task(watch.run())
        while not watch.settled:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    return watch


def test_devices_of_a_file_have_their_resources_place_health_and_links(tmp_path: Path) -> None:
    infos(tmp_path / "infos", NPU, PEER)
    amounts = {"koordinator.sh/gpu-memory": 64 * GIB, "huawei.com/npu-core": 20, "koordinator.sh/gpu-core": 100}
    amounts["koordinator.sh/gpu-memory-ratio"] = 100
    healthy = DeviceCondition("Healthy", "True", "DeviceHealthy", "device is healthy")
    broken = DeviceCondition("Healthy", "False", "ChipError", "NPU index 1 has 2 chip faults")
    place: dict[str, Any] = {"numa": 1, "pcie_root": "pci0000:3a", "bus_id": "0000:3b:00.0"}
    assert collector(tmp_path, "Accelerators").collect() == Devices(
        (
            DeviceFound("gpu", 0, True, "npu-0-0", amounts, **place, conditions=(healthy,)),
            DeviceFound("gpu", 1, False, "npu-1-1", amounts, conditions=(broken,)),
        ),
        {},
        {
            "node.koordinator.sh/gpu-vendor": "huawei",
            "node.koordinator.sh/gpu-model": "Ascend-910B3",
            "node.koordinator.sh/gpu-partition-policy": "Honor",
        },
        {"2": (Partition((0, 1), "HCCS"),)},  # the peer 7 does not exist
    )


def test_devices_without_links_have_no_policy_and_without_status_are_healthy(tmp_path: Path) -> None:
    infos(tmp_path / "infos", {"vendor": "kunlun", "model": "P800", "uuid": "xpu-0", "minor": "0"})
    found = collector(tmp_path, "Accelerators").collect()
    assert found.devices == (DeviceFound("gpu", 0, True, "xpu-0", {"koordinator.sh/gpu-memory-ratio": 100}),)
    assert "node.koordinator.sh/gpu-partition-policy" not in found.labels


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"minor": "-1"}, "npu-0-0 has minor '-1'; it must be 0..1023"),
        ({"minor": "1024"}, "npu-0-0 has minor '1024'"),
        ({"uuid": ""}, "the device with minor 0 has no uuid"),
        ({"topology": {"nodeID": "x"}}, "npu-0-0 has nodeID 'x'"),
        ({"resources": {"gpu-memory": "much"}}, "npu-0-0: 'much' is not a quantity"),
        ({"resources": {"gpu-memory": "-1"}}, "npu-0-0 has a negative amount of gpu-memory"),
        ({"resources": 5}, "cannot be read: Expected `object`"),
        ({"uuid": "x" * 129}, "cannot be read: Expected `str` of length <= 128"),
    ],
)
def test_one_invalid_device_leaves_all_accelerators_unread(changed: dict[str, Any], text: str, tmp_path: Path) -> None:
    infos(tmp_path / "infos", PEER, name="a")
    infos(tmp_path / "infos", NPU | changed, name="b")
    with pytest.raises(BadDeviceInfo, match=text.replace("(", r"\(")):
        read_device_infos(tmp_path / "infos")
    found = collector(tmp_path, "Accelerators").collect()
    assert (found.devices, list(found.unread)) == ((), ["gpu"])
    assert text in found.unread["gpu"]


def test_two_devices_with_one_minor_and_a_file_that_is_too_long_are_rejected(tmp_path: Path) -> None:
    infos(tmp_path / "infos", NPU, name="a")
    infos(tmp_path / "infos", NPU | {"uuid": "other"}, name="b")
    with pytest.raises(BadDeviceInfo, match="other and npu-0-0 both have minor 0"):
        read_device_infos(tmp_path / "infos")
    (tmp_path / "infos/b").write_bytes(b" " * (1 << 20) + b"[]")
    with pytest.raises(BadDeviceInfo, match="more than 1048576 bytes"):
        read_device_infos(tmp_path / "infos")


def test_files_take_precedence_over_nvidias_library(tmp_path: Path) -> None:
    card = NvidiaCard("0000:1a:00.0", "GPU-0", 0, 80 * GIB, "NVIDIA H100 80GB HBM3")
    here = collector(tmp_path, "Accelerators", nvidia=nvidia_with(tmp_path, card))
    found = here.collect()
    assert [one.id for one in found.devices] == ["GPU-0"]
    assert found.labels == {
        "node.koordinator.sh/gpu-vendor": "nvidia",
        "node.koordinator.sh/gpu-model": "H100-80GB-HBM3",
        "node.koordinator.sh/gpu-driver-version": "550.54.15",
    }
    infos(tmp_path / "infos", NPU)
    assert [one.id for one in here.collect().devices] == ["npu-0-0"]
    infos(tmp_path / "infos")  # an empty list
    assert [one.id for one in here.collect().devices] == ["GPU-0"]


def test_a_driver_whose_library_lists_nothing_leaves_the_gpus_unread(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    watch = nvidia_with(tmp_path)
    here = collector(tmp_path, "Accelerators", nvidia=watch)
    assert here.collect() == Devices()
    sysfs_trees.pci_function(tmp_path / "sys", "pci0000:00/0000:00:02.0", 0x030200, "10de", driver="nvidia")
    assert here.collect().unread["gpu"].startswith("NVIDIA's driver serves cards, and its library lists none: ")


def test_each_gate_enables_its_type(tmp_path: Path) -> None:
    infos(tmp_path / "infos", NPU)
    sys = tmp_path / "sys"
    card = sysfs_trees.rdma_card(sys, BELOW_SWITCH.format(port=1, address="0000:1b:00.0"), "mlx5_0")
    sysfs_trees.fpga_manager(sys, card, 0, "operating")
    kinds = {"Accelerators": "gpu", "RDMADevices": "rdma", "FPGADevices": "fpga"}
    for gate, kind in kinds.items():
        assert [one.type for one in collector(tmp_path, gate).collect().devices] == [kind]
    assert [one.type for one in collector(tmp_path, *kinds).collect().devices] == ["fpga", "gpu", "rdma"]


def test_devices_are_reported_at_once_when_they_change_and_again_each_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Message] = []
    infos(tmp_path / "infos", NPU)
    card = sysfs_trees.rdma_card(tmp_path / "sys", "pci0000:00/0000:00:01.0", "rocep0s1")
    reporter = DeviceReporter(collector(tmp_path, "Accelerators", "RDMADevices"), Sender("n", "b"), sent.append)
    for second in (0, 3, 59, 60):
        reporter.run_cycle(second * SECOND, 10**18 + second)
    infos(tmp_path / "infos", NPU | {"status": {"healthy": False}})
    reporter.run_cycle(61 * SECOND, 10**18 + 61)
    decoded = [device_inventory.decode(message.data, "n") for message in sent]
    assert [(one.node, one.boot, one.seq, one.at_ns - 10**18) for one in decoded] == [
        ("n", "b", 1, 0),
        ("n", "b", 1, 60),
        ("n", "b", 2, 61),
    ]
    assert [message.seq for message in sent] == [1, 1, 2]
    assert [device_inventory.devices_of(one).devices[0].health for one in decoded] == [True, True, False]
    assert caplog.text.count("a device is not reported") == 1  # the RDMA card without a number
    assert card.name in caplog.records[0].__dict__["why"]
    assert caplog.records[0].levelno == logging.WARNING


def test_nothing_is_reported_before_nvidias_library_has_listed_its_cards_or_failed(tmp_path: Path) -> None:
    sent: list[Message] = []
    watch = NvidiaWatch(("true",), PciBus(tmp_path), Deadlines())
    reporter = DeviceReporter(collector(tmp_path, "Accelerators", nvidia=watch), Sender("n", "b"), sent.append)
    reporter.run_cycle(0, 10**18)
    assert sent == []
    watch.settled = True
    reporter.run_cycle(0, 10**18)
    assert [message.kind for message in sent] == [INVENTORY]


def test_a_newer_inventory_replaces_the_one_that_waits() -> None:
    outbox = Outbox(100)
    for seq in (1, 2):
        outbox.put(Message(INVENTORY, seq, b"x" * seq))
    assert (len(outbox), outbox.waiting_bytes, outbox.dropped) == (1, 2, 0)
    assert asyncio.run(outbox.next(INVENTORY)).seq == 2


def test_gpu_usage_is_summed_over_a_report() -> None:
    builder = ReportBuilder(0)
    usage = GpuUsage("GPU-1", 40, 4 * GIB, 16 * GIB)
    for second in (1, 2):
        builder.add(UsageSnapshot(second * SECOND, None, None, None, {}, gpus={("", 3): usage, ("uid", 3): usage}))
    made = builder.build(Sender("n", "b"), 1, 2 * SECOND, 10**18)
    assert made.gpus == tuple(GpuSum(uid, 3, "GPU-1", 80, 8 * GIB, 2, 16 * GIB) for uid in ("", "uid"))
