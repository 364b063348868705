"""The node agent's strategies on a v2 hierarchy: a guest runs them on Debian's kernel. This machine's cgroups stay.

The guest runs the unit tests that write cgroups, on its kernel in place of files, and tests/node/guest/real_cgroups.py.
"""

import re
import sys
from pathlib import Path

import pytest

from tests.node.guest.initial_files import Program
from tests.node.guest.virtual_machine import GuestRun, run_or_skip
from tests.unit.node_agent.cgroup.cgroup_trees import KERNEL_V2, OWN_KERNEL

ROOT = Path(__file__).parents[2]
UNIT = "tests/unit/node_agent"
FILES = (
    f"{UNIT}/cgroup/test_executor.py",
    f"{UNIT}/qos_manager/test_qos_manager.py",
    f"{UNIT}/qos_manager/test_new_pods.py",
    "tests/node/guest/real_cgroups.py",
)
WITHIN_S = 3000.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(int(WITHIN_S) + 300)]


def results(run: GuestRun) -> dict[str, str]:
    """Returns test -> PASSED, FAILED, ..., as the guest printed them."""
    return dict(re.findall(r"^(\S+::\S+) (PASSED|FAILED|SKIPPED|ERROR)\b", run.console, re.MULTILINE))


def test_every_strategy_writes_and_restores_the_v2_files_of_a_real_kernel() -> None:
    options = (
        "-v",
        "-rP",
        "--color=no",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        "addopts=--import-mode=importlib",
    )
    argv = (sys.executable, "-m", "pytest", *options, "-k", f"{KERNEL_V2} or real_cgroups", *FILES)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", OWN_KERNEL: "1"}
    run = run_or_skip(Program(argv, ROOT, environment), {}, WITHIN_S)
    found = results(run)
    print(f"kernel {run.kernel}, {len(found)} tests in {run.seconds:.0f} s")
    print("\n".join(re.findall(r"^(?:kernel|cpu pressure) .*$", run.console, re.MULTILINE)))
    assert run.exit_status == 0, run.console[-20_000:]
    assert set(found.values()) == {"PASSED"}, found
    assert {name.partition("::")[0] for name in found} == set(FILES)
