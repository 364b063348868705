"""Programs in place of the vendors' tools: they print what the tools print, and fail as those do."""

from collections.abc import Mapping
from pathlib import Path

NPU_SMI = {
    "info -m": """\
	NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
	0                              0                              0                              Ascend 910B3
	0                              1                              -                              Mcu
""",
    "info -l": """\
	Total Count                    : 2

	NPU ID                         : 0
	Product Name                   : IT21HMDA
	Serial Number                  : 1023C1234567

	NPU ID                         : 1
	Product Name                   : IT21HMDA
""",
    "info -t memory -i 0": """\
	NPU ID                         : 0
	DDR Capacity(MB)               : 0
	DDR Clock Speed(MHz)           : 0
	HBM Capacity(MB)               : 65536
	HBM Clock Speed(MHz)           : 1600
""",
    "info -t common -i 0": """\
	NPU ID                         : 0
	Aicore Freq(MHZ)               : 800
	Aicore Count                   : 20
""",
    "info -t cpu-num-cfg -i 0": """\
	Current AI CPU number          : 1
	Current control CPU number     : 3
""",
    "info -t board -i 0": """\
	Product Name                   : IT21HMDA
	PCIe Bus Info                  : 0000:C1:00.0
	Chip Fault                     : 0
""",
    "info -t board -i 1": """\
	PCIe Bus Info                  : 0000:C2:00.0
	Chip Fault                     : 2
""",
}
"""Arguments of `npu-smi` -> output, of two NPUs 910B3, the second with faults."""

_XPU = "0000:{bus}:00.0 {minor} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 512 98304 0 0 P800 0 0\n"
XPU_SMI = {
    "-m": _XPU.format(bus="3b", minor=0) + _XPU.format(bus="86", minor=1),
    "-m -d /dev/xpu0": _XPU.format(bus="3b", minor=0),
    "-m -d /dev/xpu1": _XPU.format(bus="86", minor=1),
}
CNMON = {
    "-l": """\
Card 0: MLU370-X8 (UUID: c1f2aaaa-0000-0000-0000-000000000000)
Card 1: MLU370-X8 (UUID: c1f2bbbb-0000-0000-0000-000000000000)
""",
    "info": """\
Card 0
    Physical Memory Usage :
        Total                  : 49152 MiB
        Used                   : 512 MiB
""",
    "info -c 0": """\
    UUID                       : c1f2aaaa-0000-0000-0000-000000000000
    NUMA node id               : 1
    Device                     : Good
    Domain ID                  : 0000
    Bus num                    : 4f
    Device                     : 1c
    Function                   : 0
""",
    "info -c 1": """\
    UUID                       : c1f2bbbb-0000-0000-0000-000000000000
    NUMA node id               : 0
    Device                     : In Error
    Domain ID                  : 0000
    Bus num                    : 50
    Device                     : 00
    Function                   : 0
""",
}
MX_SMI = {
    "--show-hwinfo": """\
GPU#0  MXC500  0000:0a:00.0
    Model Name                 : MXC500
    Memory Capacity            : 64GB
GPU#1  MXC500  0000:0b:00.0
    Model Name                 : MXC500
    Memory Capacity            : 64GB
""",
    "--list": """\
GPU#0 MXC500 0000:0a:00.0 Available UUID: (GPU-aaaa-0)
SGPU#1 MXC500 0000:0b:00.1 Available UUID: (SGPU-bbbb-9)
GPU#10 MXC500 0000:0f:00.0 Available UUID: (GPU-ffff-10)
GPU#1 MXC500 0000:0b:00.0 Available UUID: (GPU-bbbb-1)
""",
    "--show-hwinfo -i 0": "GPU#0  MXC500  0000:0a:00.0\n",
    "--show-hwinfo -i 1": "GPU#1  MXC500  0000:0b:00.0\n",
    "--count-ecc -i 0": "SRAM Uncorrectable : 0\nDRAM Uncorrectable : 0\nDouble Bit ECC : 0\n",
    "--count-ecc -i 1": "SRAM Uncorrectable : 1\nDRAM Uncorrectable : 4\nDouble Bit ECC : 0\n",
}


def program(folder: Path, name: str, outputs: Mapping[str, str], otherwise: str = "exit 1") -> None:
    """Writes a program that prints the output of its arguments.

    Args:
        otherwise: a shell command for other arguments.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["#!/bin/sh", 'case "$*" in']
    for number, (arguments, output) in enumerate(outputs.items()):
        (folder / f"{name}.{number}").write_text(output)
        lines.append(f'"{arguments}") cat "{folder}/{name}.{number}" ;;')
    lines += [f"*) {otherwise} ;;", "esac"]
    (folder / name).write_text("\n".join(lines) + "\n")
    (folder / name).chmod(0o755)
