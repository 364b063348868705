"""Block I/O on a sysfs and cgroups made of files."""

from pathlib import Path

import pytest

from services.node_agent.block_devices import BlockDevices, storage
from shared.kube.slo_config import BlkioQos, Block, IoCfg, QosClass, ResourceQos
from tests.unit.node_agent.cgroup.tree import Files

BPS, WEIGHT = "blkio.throttle.read_bps_device", "blkio.cost.weight"


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    devices, block = tmp_path / "sys/devices", tmp_path / "sys/class/block"
    block.mkdir(parents=True)
    for name, number in (("sda", "8:0"), ("sda/sda1", "8:1"), ("dm-0", "253:0")):
        (devices / name).mkdir(parents=True)
        (devices / name / "dev").write_text(f"{number}\n")
        (block / Path(name).name).symlink_to(devices / name)
    (devices / "sda/sda1/partition").write_text("1\n")
    (devices / "dm-0/dm").mkdir()
    (devices / "dm-0/dm/name").write_text("fast--pool-lv\n")
    (devices / "dm-0/slaves/sda1").mkdir(parents=True)
    return tmp_path / "sys"


def test_devices_are_found_by_what_the_kernel_shows(sys: Path) -> None:
    found = storage(sys)
    assert found.disks == {"/dev/sda": "8:0"}
    assert found.partitions == {"/dev/sda1": "/dev/sda"}
    assert found.groups == {"fast-pool": "/dev/sda"}
    assert found.number("/dev/mapper/fast--pool-lv") == "8:0"


def strategy(name: str) -> ResourceQos:
    block = Block(name=name, type="device", io_cfg=IoCfg(read_bps=1024, io_weight_percent=40))
    return ResourceQos(be_class=QosClass(blkio_qos=BlkioQos(enable=True, blocks=(block,))))


def test_best_effort_is_held_on_a_disk_and_let_go_at_the_end(tmp_path: Path, sys: Path) -> None:
    files = Files(tmp_path / "cgroup", 1)
    files.make("kubepods/besteffort")
    devices = BlockDevices(files.executor(), sys)
    devices.round(strategy("/dev/sda1"), "kubepods/besteffort", [])
    assert files.text(BPS, "kubepods/besteffort") == "8:0 1024"
    assert files.text(WEIGHT, "kubepods/besteffort") == "8:0 40"
    devices.release()
    assert files.text(BPS, "kubepods/besteffort") == "8:0 0"
    assert files.text(WEIGHT, "kubepods/besteffort") == "8:0 100"


def test_a_block_that_names_no_device_leaves_its_target_alone(
    tmp_path: Path, sys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path / "cgroup", 1)
    files.make("kubepods/besteffort")
    BlockDevices(files.executor(), sys).round(strategy("/dev/nvme9n1"), "kubepods/besteffort", [])
    assert files.text(BPS, "kubepods/besteffort") == ""
    assert "/dev/nvme9n1" in caplog.text
