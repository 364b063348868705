"""koord demo, small: on a terminal and into a pipe."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.cli.system_processes import processes_of
from tests.support.terminal import CTRL_C, Terminal
from tests.support.waiting import wait_until

SMALL = ["demo", "--nodes", "10", "--pods", "60"]
ENDS_WITHIN_S = 5.0


def test_the_demo_ends_with_a_summary_and_leaves_nothing_running(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cli", *SMALL, "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "60 pods placed and bound on 10 nodes" in done.stdout
    assert re.search(r"^with load-awareness +\d+ +\d+ %", done.stdout, re.MULTILINE)
    assert "koord why pod default/" in done.stdout
    assert re.search(r"^Log verified: [\d,]+ events", done.stdout, re.MULTILINE)
    assert not processes_of(tmp_path)
    assert f"`koord events --dir {tmp_path}/aware`" in done.stdout
    pod = re.search(r"koord why pod (default/\S+)`", done.stdout)
    assert pod
    aware, blind = (koord("why", "pod", pod[1], "--dir", str(tmp_path / run)).stdout for run in ("aware", "blind"))
    assert pod[1] in aware
    assert pod[1] in blind
    assert aware != blind
    again = json.loads(koord("replay", "--dir", f"{tmp_path}/aware", "--json").stdout)
    assert again["decisions"] == again["equal"] > 0, again
    several = koord("events", "--dir", str(tmp_path))
    assert f"choose one with --dir: {tmp_path}/aware, {tmp_path}/blind" in several.stderr


def koord(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "cli", *arguments], capture_output=True, text=True, check=False)


def test_ctrl_c_ends_the_demo_while_its_servers_start(tmp_path: Path) -> None:
    with Terminal([*SMALL, "--dir", str(tmp_path)]) as terminal:
        wait_until((tmp_path / "postgres" / "data.new").exists)
        terminal.press(CTRL_C)
        pressed = time.monotonic()
        assert terminal.wait_for_end() == 130
    assert not re.search("Traceback|Task exception|is closed", terminal.seen), terminal.seen
    assert time.monotonic() - pressed < ENDS_WITHIN_S
    assert not (tmp_path / "postgres" / "data").exists()
    assert not processes_of(tmp_path)


def test_the_demo_is_live_on_a_terminal_and_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    with Terminal([*SMALL, "--dir", str(tmp_path)]) as terminal:
        terminal.wait_for(r"With load-awareness")
        terminal.wait_for(r"scheduler +leading")
        terminal.wait_for(r"10 of 10 nodes have reported, 2 run hot")
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 130
    assert not processes_of(tmp_path)
