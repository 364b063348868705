"""Builders of sysfs trees, after those that the kernel makes for real machines."""

from pathlib import Path

NETWORK, VGA, BRIDGE, ACCELERATOR = 0x020000, 0x030200, 0x060400, 0x120000
NVIDIA, MELLANOX, XILINX, HUAWEI, KUNLUN, CAMBRICON, METAX = (
    "10de", "15b3", "10ee", "19e5", "1d22", "cabc", "9999",
)  # fmt: skip

BELOW_SWITCH = "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:{port:02x}.0/{address}"
"""A function behind a PCIe switch: root port, upstream port of the switch, downstream port, function."""


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def pci_function(
    sys: Path, path: str, class_code: int, vendor: str, product: str = "2330", *, numa: int = 0, driver: str = ""
) -> Path:
    """Adds a function at a path below /sys/devices; returns its folder."""
    folder = sys / "devices" / path
    for name, number in (("class", class_code), ("vendor", int(vendor, 16)), ("device", int(product, 16))):
        put(folder / name, f"0x{number:06x}\n" if name == "class" else f"0x{number:04x}\n")
    put(folder / "numa_node", f"{numa}\n")
    link(sys / "bus/pci/devices" / folder.name, folder)
    if driver:
        link(sys / "bus/pci/drivers" / driver / folder.name, folder)
    return folder


def link(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def remove_function(sys: Path, address: str, driver: str) -> None:
    """Removes a function, as a card that falls off the bus does."""
    (sys / "bus/pci/devices" / address).unlink()
    (sys / "bus/pci/drivers" / driver / address).unlink()


def gpu_path(number: int) -> str:
    """The path of the GPU `number`, from 0: two below each downstream port's switch."""
    return BELOW_SWITCH.format(port=number, address=gpu_address(number))


def gpu_address(number: int) -> str:
    return f"0000:{0x1A + number:02x}:00.0"


def rdma_card(sys: Path, path: str, name: str, *, states: tuple[str, ...] = ("4: ACTIVE",), numa: int = 0) -> Path:
    """Adds a Mellanox card with one RDMA device and its ports."""
    folder = pci_function(sys, path, NETWORK, MELLANOX, "1021", numa=numa, driver="mlx5_core")
    for port, state in enumerate(states, 1):
        put(folder / "infiniband" / name / f"ports/{port}/state", f"{state}\n")
    (folder / "infiniband" / name).mkdir(parents=True, exist_ok=True)
    link(sys / "class/infiniband" / name, folder / "infiniband" / name)
    return folder


def virtual_function(sys: Path, card: Path, number: int, address: str) -> None:
    """Adds a virtual function to a card."""
    folder = pci_function(sys, str((card.parent / address).relative_to(sys / "devices")), NETWORK, MELLANOX, "101e")
    (folder / "physfn").symlink_to(card)
    (card / f"virtfn{number}").symlink_to(folder)
    (folder / "infiniband" / f"mlx5_{10 + number}").mkdir(parents=True)
    put(card / "sriov_numvfs", f"{number + 1}\n")


def fpga_manager(sys: Path, card: Path, number: int, state: str) -> None:
    folder = card / f"fpga_manager/fpga{number}"
    put(folder / "state", f"{state}\n")
    link(sys / f"class/fpga_manager/fpga{number}", folder)
