"""The systemd units of k8s/node, really started: systemd is process 1 of a guest, with a containerd of its own."""

import os
import re
import sys
from pathlib import Path

import pytest

from cli.dev.binaries import provide
from tests.node.guest.initial_files import Program
from tests.node.guest.virtual_machine import run_or_skip

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "k8s" / "node"
SYSTEMD = Path("/lib/systemd/systemd")
WITHIN_S = 1800.0

STEPS = """\
[Unit]
Description=Steps of the test
After=containerd.service
Requires=containerd.service

[Service]
WorkingDirectory={root}
ExecStart={python} -m tests.node.guest.unit_steps {unit}
StandardOutput=file:/dev/ttyS0
StandardError=file:/dev/ttyS0
TimeoutStartSec=infinity
"""
CONTAINERD = """\
[Unit]
Description=containerd of the tests

[Service]
Type=notify
TimeoutStartSec=infinity
Environment=PATH={folder}:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart={folder}/containerd --config /etc/containerd/guest.toml
"""
CONFIG = """\
version = 3
disabled_plugins = ["io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.nri.v1.nri"]
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
"""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(int(WITHIN_S) + 300)]


def test_every_unit_is_tested_here() -> None:
    assert [path.name for path in UNITS.glob("*.service")] == ["koord-runtime-proxy.service"]


def test_the_runtime_proxy_starts_is_restarted_after_a_kill_and_stops() -> None:
    if not SYSTEMD.exists():
        pytest.skip(f"no {SYSTEMD} on this machine")
    unit = UNITS / "koord-runtime-proxy.service"
    containerd = provide("containerd")["containerd"].parent
    units = "/etc/systemd/system"
    files = {
        f"{units}/{unit.name}": unit.read_text(),
        f"{units}/containerd.service": CONTAINERD.format(folder=containerd),
        f"{units}/koord-guest.service": STEPS.format(root=ROOT, python=sys.executable, unit=unit.name),
        "/etc/containerd/guest.toml": CONFIG,
        "/etc/fstab": "",
    }
    argv = (str(SYSTEMD), "--unit=koord-guest.service", "--show-status=0", "--log-level=warning")
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    run = run_or_skip(Program(argv, Path("/"), environment, first=True), files, WITHIN_S)
    print(f"kernel {run.kernel} in {run.seconds:.0f} s")
    print("\n".join(re.findall(r"^koord-guest: (.*)$", run.console, re.MULTILINE)))
    assert run.exit_status == 0, run.console[-20_000:]
