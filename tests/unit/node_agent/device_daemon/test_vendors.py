"""Accelerators from the outputs of their vendors' tools, found by their PCI ids."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from services.node_agent.device_daemon.device_info_file import ListedDevice, ListedPlace, encode
from services.node_agent.device_daemon.service import Vendors
from services.node_agent.device_daemon.vendor_tool import ToolFailed, VendorFailed, VendorTool
from services.node_agent.devices.pci_bus import PciBus
from services.node_agent.devices.xpu_device_infos import read_device_infos
from tests.support.sysfs_trees import (
    ACCELERATOR,
    CAMBRICON,
    HUAWEI,
    KUNLUN,
    METAX,
    NETWORK,
    pci_function,
)
from tests.unit.node_agent.device_daemon import vendor_programs
from tests.unit.node_agent.device_daemon.vendor_programs import CNMON, MX_SMI, NPU_SMI, XPU_SMI

Listing = Callable[..., list[ListedDevice]]


@pytest.fixture
def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listing:
    """Lists the devices of a machine whose only tool is the given one."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def listed(name: str, outputs: Mapping[str, str], otherwise: str = "exit 1", files: int = 2) -> list[ListedDevice]:
        vendor_programs.program(tmp_path / "bin", name, outputs, otherwise)
        (tmp_path / "dev").mkdir(exist_ok=True)
        for file in ("davinci_manager", *(f"davinci{number}" for number in range(files))):
            (tmp_path / "dev" / file).touch()
        tool = VendorTool(None, within_s=20)
        return Vendors(tool, PciBus(tmp_path / "sys"), tmp_path / "dev").list_devices()

    return listed


def card(sys: Path, vendor: str, address: str, *, product: str = "d802", class_code: int = ACCELERATOR) -> None:
    root = f"pci0000:{address[5:7]}"
    pci_function(sys, f"{root}/0000:{address[5:7]}:01.0/{address}", class_code, vendor, product, numa=1)


def npu(number: int, place: ListedPlace) -> ListedDevice:
    resources = {
        "koordinator.sh/gpu-memory": "65536Mi",
        "huawei.com/npu-core": "20",
        "huawei.com/npu-cpu": "7",
        "huawei.com/npu-dvpp": "100",
    }
    return ListedDevice("huawei", "Ascend-910B3", f"npu-{number}-{number}", str(number), resources, place)


def test_npus_have_cores_memory_place_and_faults(listing: Listing, tmp_path: Path) -> None:
    card(tmp_path / "sys", HUAWEI, "0000:c1:00.0")
    assert listing("npu-smi", NPU_SMI) == [
        npu(0, ListedPlace("1", "pci0000:c1", "0000:c1:00.0")),
        npu(1, ListedPlace("", "", "0000:c2:00.0"))._replace(
            healthy=False, error_code="chip error", error_message="NPU index 1 has 2 chip faults"
        ),
    ]


@pytest.mark.parametrize(
    ("model", "outputs", "expected"),
    [
        ("Ascend 310P3", {}, ("21527Mi", "8", "1")),
        ("Ascend 910B", {}, ("65536Mi", "20", "0")),
        ("Ascend 910B2", {}, ("65536Mi", "20", "6")),
        ("Ascend 910C", {}, ("65536Mi", "20", "1")),
    ],
)
def test_models_of_npus_differ_in_what_can_be_queried(
    model: str, outputs: dict[str, str], expected: tuple[str, ...], listing: Listing, tmp_path: Path
) -> None:
    card(tmp_path / "sys", HUAWEI, "0000:c1:00.0")
    outputs = {**NPU_SMI, "info -m": NPU_SMI["info -m"].replace("Ascend 910B3", model), **outputs}
    if model == "Ascend 310P3":
        del outputs["info -t memory -i 0"], outputs["info -t common -i 0"]
    found = listing("npu-smi", outputs, "echo 'Command or option is not found.'; exit 1")
    names = ("koordinator.sh/gpu-memory", "huawei.com/npu-core", "huawei.com/npu-cpu")
    assert tuple(found[0].resources[name] for name in names) == expected


def test_device_files_are_paired_with_cards_by_number(listing: Listing, tmp_path: Path) -> None:
    card(tmp_path / "sys", HUAWEI, "0000:c1:00.0")
    cards = range(12)
    boards = {f"info -t board -i {number}": NPU_SMI["info -t board -i 0"] for number in cards if number != 5}
    listed = {"info -l": "".join(f"NPU ID : {number}\n" for number in cards)}
    found = listing("npu-smi", {**NPU_SMI, **listed, **boards}, files=12)
    # The query of card 5 fails: it is left out alone.
    assert [one.uuid for one in found] == [f"npu-{number}-{number}" for number in cards if number != 5]


def test_bridges_and_network_cards_of_huawei_are_no_npus(listing: Listing, tmp_path: Path) -> None:
    card(tmp_path / "sys", HUAWEI, "0000:01:00.0", product="1710")
    card(tmp_path / "sys", HUAWEI, "0000:02:00.0", product="1822", class_code=NETWORK)
    assert listing("npu-smi", {}) == []


def test_xpus_have_memory_model_and_place(listing: Listing, tmp_path: Path) -> None:
    card(tmp_path / "sys", KUNLUN, "0000:3b:00.0")
    resources = {"koordinator.sh/gpu-memory": "98304Mi", "koordinator.sh/gpu-core": "100"}
    first, second = listing("xpu_smi", XPU_SMI)
    assert first == ListedDevice(
        "kunlun", "P800", "xpu-0", "0", resources, ListedPlace("1", "pci0000:3b", "0000:3b:00.0")
    )
    assert (second.uuid, second.minor) == ("xpu-1", "1")


def test_mlus_have_their_uuid_address_and_state(listing: Listing, tmp_path: Path) -> None:
    card(tmp_path / "sys", CAMBRICON, "0000:4f:1c.0")
    resources = {"koordinator.sh/gpu-memory": "49152Mi", "koordinator.sh/gpu-core": "100"}
    uuid = "c1f2{}-0000-0000-0000-000000000000"
    good = ListedDevice(
        "cambricon", "MLU370-X8", uuid.format("aaaa"), "0", resources, ListedPlace("1", "pci0000:4f", "0000:4f:1c.0")
    )
    assert listing("cnmon", CNMON) == [
        good,
        good._replace(
            uuid=uuid.format("bbbb"),
            minor="1",
            place=ListedPlace("0", "", "0000:50:00.0"),
            healthy=False,
            error_message="Device is unhealthy, status: In Error",
        ),
    ]  # fmt: skip


def test_metax_gpus_have_their_uuid_and_any_uncorrectable_error_counts(listing: Listing, tmp_path: Path) -> None:
    card(tmp_path / "sys", METAX, "0000:0a:00.0")
    resources = {"koordinator.sh/gpu-memory": "64Gi", "koordinator.sh/gpu-core": "100"}
    good = ListedDevice("metax", "MXC500", "GPU-aaaa-0", "0", resources, ListedPlace("1", "pci0000:0a", "0000:0a:00.0"))
    assert listing("mx-smi", MX_SMI) == [
        good,
        good._replace(
            uuid="GPU-bbbb-1",
            minor="1",
            place=ListedPlace("", "", "0000:0b:00.0"),
            healthy=False,
            error_code="ECC error",
            error_message="MX index 1 has 5 SRAM/DRAM Uncorrectable or Double Bit ECC errors",
        ),
    ]


@pytest.mark.parametrize(
    ("vendor", "name", "outputs", "text"),
    [
        (HUAWEI, "npu-smi", {}, "`npu-smi info -m` ended with 1"),
        (HUAWEI, "npu-smi", {"info -m": "garbage"}, "names no chip"),
        (HUAWEI, "npu-smi", NPU_SMI | {"info -l": ""}, "lists 0 NPUs"),
        (HUAWEI, "npu-smi", NPU_SMI | {"info -l": "NPU ID : -1\n"}, "an NPU ID is '-1'"),
        (HUAWEI, "npu-smi", NPU_SMI | {"info -t memory -i 0": "HBM Capacity(MB) : NA"}, "the memory of an NPU is 'NA'"),
        (HUAWEI, "npu-smi", NPU_SMI | {"info -t common -i 0": f"Aicore Count : {10**12}"}, "Aicore Count is '1000000000000'"),
        (KUNLUN, "xpu_smi", {"-m": "a b c\n"}, "has no field 22"),
        (KUNLUN, "xpu_smi", {"-m": XPU_SMI["-m"].replace("98304", "-")}, "the memory of an XPU is '-'"),
        (CAMBRICON, "cnmon", {"-l": "nothing"}, "names no MLU"),
        (CAMBRICON, "cnmon", CNMON | {"info": ""}, "has no total of the physical memory"),
        (METAX, "mx-smi", {"--show-hwinfo": "Model Name : MXC500\n"}, "no memory in GB"),
    ],
)  # fmt: skip
def test_outputs_that_cannot_be_read_name_what_is_wrong(
    vendor: str, name: str, outputs: dict[str, str], text: str, listing: Listing, tmp_path: Path
) -> None:
    card(tmp_path / "sys", vendor, "0000:c1:00.0")
    with pytest.raises((ToolFailed, VendorFailed)) as error:
        listing(name, outputs)
    assert text in str(error.value)


def test_a_tool_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    vendor_programs.program(tmp_path, "npu-smi", {}, "exec sleep 1000")
    with pytest.raises(ToolFailed, match=r"`npu-smi info` did not end within 0\.1 s"):
        VendorTool(None, within_s=0.1).run("npu-smi", "info")


def test_tools_are_those_of_the_host_where_its_root_is_mounted(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"cannot be started|ended with"):
        VendorTool(tmp_path, within_s=20).run("true")
    with pytest.raises(ToolFailed, match="`koord-no-such` cannot be started"):
        VendorTool(None, within_s=20).run("koord-no-such")


def test_the_agent_reads_what_the_daemon_lists(listing: Listing, tmp_path: Path) -> None:
    card(tmp_path / "sys", HUAWEI, "0000:c1:00.0")
    (tmp_path / "infos").mkdir()
    (tmp_path / "infos/ic-device").write_bytes(encode(listing("npu-smi", NPU_SMI)))
    found = read_device_infos(tmp_path / "infos")
    assert (found.vendor, found.model) == ("huawei", "Ascend-910B3")
    assert [(one.minor, one.id, one.health, one.numa, one.pcie_root) for one in found.devices] == [
        (0, "npu-0-0", True, 1, "pci0000:c1"),
        (1, "npu-1-1", False, -1, ""),
    ]
    assert found.devices[1].conditions[0].reason == "ChipError"
    assert found.devices[0].resources["koordinator.sh/gpu-memory"] == 65536 * 2**20
