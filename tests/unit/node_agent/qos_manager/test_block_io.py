"""Block I/O on a sysfs and cgroups made of files."""

import json
from pathlib import Path

import psutil
import pytest

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.qos_manager.enforcers.block_io import BlockIoEnforcer, mounts, storage
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from shared.kube.pod import ClaimSource, Volume
from shared.kube.slo_config import BlkioQos, Block, IoCfg, QosClass, ResourceQos
from tests.support.pods import kept_pod
from tests.unit.node_agent.cgroup.cgroup_trees import Files

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


def test_best_effort_is_limited_on_a_disk_and_released_at_the_end(tmp_path: Path, sys: Path) -> None:
    files = Files(tmp_path / "cgroup", 1)
    files.make("kubepods/besteffort")
    devices = BlockIoEnforcer(files.executor(), sys, tmp_path / "proc", tmp_path / "kubelet")
    devices.reconcile(strategy("/dev/sda1"), "kubepods/besteffort", [], {})
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
    BlockIoEnforcer(files.executor(), sys, tmp_path / "proc", tmp_path / "kubelet").reconcile(
        strategy("/dev/nvme9n1"), "kubepods/besteffort", [], {}
    )
    assert files.text(BPS, "kubepods/besteffort") == ""
    assert "/dev/nvme9n1" in caplog.text


def test_a_pods_block_io_is_limited_on_bound_claims_and_inline_volumes(tmp_path: Path, sys: Path) -> None:
    files, kubelet = Files(tmp_path / "cgroup", 1), tmp_path / "kubelet"
    files.make("kubepods/podx")
    volumes = kubelet / "pods/x/volumes/kubernetes.io~csi"
    for name in ("pv-1", "scratch"):
        (volumes / name / "mount").mkdir(parents=True)
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(
        f"1 0 0:1 / / rw - overlay overlay rw\n"
        f"2 1 8:1 / {volumes}/pv-1/mount rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"3 1 253:0 / {volumes}/scratch/mount rw shared:2 - xfs /dev/mapper/fast--pool-lv rw\n"
    )
    blocks = [
        {"name": "data", "type": "podvolume", "ioCfg": {"readBPS": 7}},
        {"name": "scratch", "type": "podvolume", "ioCfg": {"readBPS": 7}},
    ]
    notes = {"koordinator.sh/blkioQOS": json.dumps({"blocks": blocks})}
    volume = Volume(name="data", persistent_volume_claim=ClaimSource(claim_name="c"))
    labels = {"koordinator.sh/qosClass": "LS"}
    pod = kept_pod(uid="x", labels=labels, annotations=notes, phase="Running", volumes=(volume,))
    each = PodCgroups("kubepods/podx", {}, NodePod(pod, {}, frozenset()))
    devices = BlockIoEnforcer(files.executor(), sys, tmp_path / "proc", kubelet)
    devices.reconcile(ResourceQos(), "kubepods/besteffort", [each], {})
    assert files.text(BPS, "kubepods/podx") == ""  # its claim is not bound: the whole target waits
    devices.reconcile(ResourceQos(), "kubepods/besteffort", [each], {"d/c": "pv-1"})
    assert files.text(BPS, "kubepods/podx") == "8:0 7"
    devices.release()
    assert files.text(BPS, "kubepods/podx") == "8:0 0"


def test_this_machines_mounts_are_read(tmp_path: Path) -> None:
    """The mounts of devices are those of this process, taken for the node's first process."""
    (tmp_path / "1").symlink_to("/proc/self")
    shown = {each.mountpoint: each.device for each in psutil.disk_partitions(all=True)}
    assert mounts(tmp_path) == {point: device for point, device in shown.items() if device.startswith("/dev/")}
    assert mounts(Path("/nowhere")) == {}


def test_the_last_of_the_mounts_over_each_other_counts_and_names_are_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/mountinfo").write_text(
        "1 0 0:1 / / rw - overlay overlay rw\n"
        "2 1 8:1 / /data rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "3 2 253:0 / /data rw - xfs /dev/mapper/fast--pool-lv rw\n"
        "4 1 8:1 /sub /with\\040blank rw - ext4 /dev/sda1 rw\n"
        "5 1 0:5 / /proc rw - proc proc rw\n"
        "cut off\n"
    )
    assert mounts(tmp_path) == {"/data": "/dev/mapper/fast--pool-lv", "/with blank": "/dev/sda1"}
