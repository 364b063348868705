"""Cards of RDMA and FPGAs, and places on the PCI bus, from sysfs trees."""

from pathlib import Path

import pytest

from services.node_agent.devices.fpga_cards import find_fpgas
from services.node_agent.devices.pci_bus import NotOnPci, PciBus, PciPlace
from services.node_agent.devices.rdma_cards import find_rdma_cards
from shared.agents.device_inventory import DeviceFound, VirtualFunction, VirtualFunctionGroup
from tests.support import sysfs_trees
from tests.support.sysfs_trees import ACCELERATOR, BELOW_SWITCH, MELLANOX, NETWORK, VGA, XILINX

CARD = "0000:1b:00.0"


def test_a_card_behind_a_switch_has_its_root_and_its_switch(tmp_path: Path) -> None:
    sysfs_trees.pci_function(tmp_path, BELOW_SWITCH.format(port=4, address=CARD), VGA, "10de", numa=1, driver="nvidia")
    assert PciBus(tmp_path).place(CARD) == PciPlace(1, "pci0000:16", "0000:17:00.0")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("pci0000:00/0000:00:02.0", PciPlace(0, "pci0000:00", "")),
        ("pci10000:e0/10000:e0:06.0/10000:e1:00.0", PciPlace(0, "pci10000:e0", "")),  # below a VMD controller
        ("pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0/0000:84:08.0/0000:85:00.0", PciPlace(0, "pci0000:80", "0000:83:00.0")),
    ],
)  # fmt: skip
def test_the_switch_is_the_nearest_one_and_no_numa_node_counts_as_0(path: str, place: PciPlace, tmp_path: Path) -> None:
    folder = sysfs_trees.pci_function(tmp_path, path, VGA, "10de", numa=-1)
    assert PciBus(tmp_path).place(folder.name) == place


def test_a_card_that_is_gone_or_below_no_root_complex_has_no_place(tmp_path: Path) -> None:
    sysfs_trees.pci_function(tmp_path, "platform/0000:01:00.0", VGA, "10de")
    for address in ("0000:01:00.0", "0000:02:00.0"):
        with pytest.raises(NotOnPci, match=address):
            PciBus(tmp_path).place(address)


def test_a_function_whose_files_are_invalid_is_left_out_until_they_are_valid(tmp_path: Path) -> None:
    folder = sysfs_trees.pci_function(tmp_path, "pci0000:00/0000:00:02.0", VGA, "10de")
    (folder / "class").write_text("?\n")
    bus = PciBus(tmp_path)
    assert bus.functions() == []
    (folder / "class").write_text("0x030200\n")
    assert [one.base_class for one in bus.functions()] == [0x03]


def test_an_rdma_card_has_its_number_place_health_and_virtual_functions(tmp_path: Path) -> None:
    card = sysfs_trees.rdma_card(tmp_path, BELOW_SWITCH.format(port=1, address=CARD), "mlx5_2", numa=1)
    sysfs_trees.virtual_function(tmp_path, card, 1, "0000:1b:00.3")
    sysfs_trees.virtual_function(tmp_path, card, 0, "0000:1b:00.2")
    (card / "sriov_numvfs").write_text("2\n")
    assert find_rdma_cards(tmp_path, PciBus(tmp_path)) == (
        [
            DeviceFound(
                "rdma",
                2,
                health=True,
                id=CARD,
                resources={"koordinator.sh/rdma": 100},
                numa=1,
                pcie_root="pci0000:16",
                pcie_switch="0000:17:00.0",
                bus_id=CARD,
                virtual_functions=(
                    VirtualFunctionGroup((VirtualFunction("0000:1b:00.2"), VirtualFunction("0000:1b:00.3"))),
                ),
            )
        ],
        [],
    )


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (("4: ACTIVE", "1: DOWN"), "mlx5_0: port 2 is 1: DOWN"),
        (("",), "mlx5_0: port 1 is without a state"),
        ((), "the ports of mlx5_0 cannot be read"),
    ],
)
def test_a_card_with_a_port_that_is_not_active_is_unhealthy(
    states: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    sysfs_trees.rdma_card(tmp_path, BELOW_SWITCH.format(port=1, address=CARD), "mlx5_0", states=states)
    ((card,), _) = find_rdma_cards(tmp_path, PciBus(tmp_path))
    assert not card.health
    assert card.conditions[0].message.startswith(message)


def test_cards_that_cannot_be_numbered_are_left_out_with_a_reason(tmp_path: Path) -> None:
    sysfs_trees.rdma_card(tmp_path, "pci0000:00/0000:00:01.0", "rocep0s1")
    sysfs_trees.rdma_card(tmp_path, "pci0000:00/0000:00:02.0", "mlx5_1024")
    sysfs_trees.rdma_card(tmp_path, "pci0000:00/0000:00:03.0", "mlx5_7")
    sysfs_trees.rdma_card(tmp_path, "pci0000:00/0000:00:04.0", "mlx4_7")
    sysfs_trees.pci_function(tmp_path, "pci0000:00/0000:00:05.0", NETWORK, MELLANOX)  # Ethernet alone
    found, faults = find_rdma_cards(tmp_path, PciBus(tmp_path))
    assert [card.id for card in found] == ["0000:00:03.0"]
    assert [fault.partition(" is left out: ")[2] for fault in faults] == [
        "its device rocep0s1 has no number below 1024",
        "its device mlx5_1024 has no number below 1024",
        "its device mlx4_7 has minor 7 of 0000:00:03.0",
    ]


def test_fpgas_are_those_of_managers_on_pci_and_errors_make_them_unhealthy(tmp_path: Path) -> None:
    for number, state in ((0, "operating"), (3, "write error")):
        path = BELOW_SWITCH.format(port=number, address=f"0000:3{number}:00.0")
        card = sysfs_trees.pci_function(tmp_path, path, ACCELERATOR, XILINX, "5000")
        sysfs_trees.fpga_manager(tmp_path, card, number, state)
    sysfs_trees.fpga_manager(tmp_path, tmp_path / "devices/platform/soc", 9, "operating")  # part of the board
    found, faults = find_fpgas(tmp_path, PciBus(tmp_path))
    assert [(one.minor, one.id, one.health, one.pcie_root, one.resources) for one in found] == [
        (0, "0000:30:00.0", True, "pci0000:16", {"koordinator.sh/fpga": 100}),
        (3, "0000:33:00.0", False, "pci0000:16", {"koordinator.sh/fpga": 100}),
    ]
    assert found[1].conditions[0].message == "the FPGA manager is in state 'write error'"
    assert faults == ["FPGA manager fpga9 is left out: it is not on PCI"]


def test_a_node_without_such_devices_has_none(tmp_path: Path) -> None:
    assert find_fpgas(tmp_path, PciBus(tmp_path)) == ([], [])
    assert find_rdma_cards(tmp_path, PciBus(tmp_path)) == ([], [])
