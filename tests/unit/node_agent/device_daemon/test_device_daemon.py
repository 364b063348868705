"""Options, output file and signals of the device daemon."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.commands.run import run as run_command
from services.node_agent.device_daemon.daemon_options import BadDaemonOption, DaemonOptions, load_options
from services.node_agent.device_daemon.device_info_file import encode
from services.node_agent.device_daemon.service import run
from tests.support.sysfs_trees import ACCELERATOR, KUNLUN, pci_function
from tests.support.waiting import wait_until
from tests.unit.node_agent.device_daemon import vendor_programs
from tests.unit.node_agent.device_daemon.vendor_programs import XPU_SMI

FILE = """
version: v1
flags:
  kdd:
    oneshot: true
    sleepInterval: 15m
    printsOutputFile: /from/file
"""


def config(folder: Path, text: str = FILE) -> str:
    (folder / "config.yaml").write_text(text)
    return str(folder / "config.yaml")


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ({}, {}, DaemonOptions(False, 900.0, "/var/run/koordlet/xpu-device-infos/ic-device")),
        ({"config-file": "FILE"}, {}, DaemonOptions(True, 900.0, "/from/file")),
        ({}, {"CONFIG_FILE": "FILE", "KDD_SLEEP_INTERVAL": "1h30m"}, DaemonOptions(True, 5400.0, "/from/file")),
        ({"oneshot": "false"}, {"KDD_CONFIG_FILE": "FILE", "KDD_ONESHOT": "1"}, DaemonOptions(False, 900.0, "/from/file")),
        ({}, {"PRINTS_OUTPUT_FILE": "b", "KDD_PRINTS_OUTPUT_FILE": "a"}, DaemonOptions(False, 900.0, "a")),
        ({"config-file": "FILE"}, {"KDD_PRINTS_OUTPUT_FILE": ""}, DaemonOptions(True, 900.0, "")),
        ({"sleep-interval": "1.5s", "no-timestamp": "true"}, {"KDD_ONESHOT": ""}, DaemonOptions(False, 1.5, DaemonOptions().output)),
    ],
)  # fmt: skip
def test_flags_take_precedence_over_the_environment_and_that_over_the_file(
    flags: dict[str, str], environment: dict[str, str], expected: DaemonOptions, tmp_path: Path
) -> None:
    path = config(tmp_path)
    flags, environment = (
        {name: text.replace("FILE", path) for name, text in each.items()} for each in (flags, environment)
    )
    assert load_options(flags, environment) == expected


@pytest.mark.parametrize(
    ("flags", "environment", "text"),
    [
        ({"oneshot": "maybe"}, {}, "--oneshot is 'maybe'; it must be true or false"),
        ({"sleep-interval": "0s"}, {}, "--sleep-interval is '0s'; it must be a duration above 0"),
        ({}, {"KDD_SLEEP_INTERVAL": "900"}, "KDD_SLEEP_INTERVAL is '900'"),
        ({}, {"KDD_NO_TIMESTAMP": "x"}, "KDD_NO_TIMESTAMP is 'x'"),
        ({"config-file": "/no/such"}, {}, "/no/such cannot be read: "),
    ],
)
def test_an_invalid_option_is_rejected_with_its_source(
    flags: dict[str, str], environment: dict[str, str], text: str
) -> None:
    with pytest.raises(BadDaemonOption) as error:
        load_options(flags, environment)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: v2\n", "version is 'v2'; it must be 'v1'"),
        ("flags: {kdd: {oneshot: 5}}\n", "Expected `bool | null`, got `int` - at `$.flags.kdd.oneshot`"),
        ("flags: {kdd: {sleepInterval: soon}}\n", "flags.kdd.sleepInterval is 'soon'"),
        ("a: [", "cannot be read: "),
    ],
)
def test_an_invalid_file_is_rejected_with_its_field(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(BadDaemonOption) as error:
        load_options({"config-file": config(tmp_path, text)}, {})
    assert expected in str(error.value)


def test_help_names_all_flags_and_their_variables() -> None:
    shown = CliRunner().invoke(run_command, ["device-daemon", "--help"]).output
    for text in ("--oneshot", "KDD_ONESHOT", "--no-timestamp", "--sleep-interval", "KDD_CONFIG_FILE", "--v LEVEL"):
        assert text in shown


def test_an_unknown_flag_is_rejected() -> None:
    shown = CliRunner().invoke(run_command, ["device-daemon", "--onshot"])
    assert "No such option '--onshot'" in shown.output


class Machine:
    """A machine with one XPU and its tool."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "infos/ic-device"
        pci_function(folder / "sys", "pci0000:3b/0000:3b:00.0", ACCELERATOR, KUNLUN)
        vendor_programs.program(
            folder / "bin", "xpu_smi", {name: text.splitlines()[0] for name, text in XPU_SMI.items()}
        )
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "KOORD_DEVICE_DAEMON_SYS_ROOT": str(folder / "sys"),
            "KDD_PRINTS_OUTPUT_FILE": str(self.output),
        }

    @property
    def uuids(self) -> list[str]:
        return [one["uuid"] for one in json.loads(self.output.read_text())]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", made.environment["PATH"])
    return made


def test_oneshot_writes_the_file_and_leaves_it(machine: Machine) -> None:
    assert run({"oneshot": "true"}, machine.environment) == 0
    assert machine.uuids == ["xpu-0"]
    assert machine.output.stat().st_mode & 0o777 == 0o644
    assert run({"oneshot": "true", "prints-output-file": ""}, machine.environment) == 0


def test_a_tool_that_fails_ends_the_daemon_and_removes_the_file(machine: Machine) -> None:
    assert run({"oneshot": "true"}, machine.environment) == 0
    Path(machine.environment["PATH"].partition(":")[0], "xpu_smi").write_text("#!/bin/sh\nexit 3\n")
    assert run({}, machine.environment) == 1
    assert not machine.output.exists()


def test_hup_lists_again_with_the_options_of_the_file_and_term_removes_the_output(
    machine: Machine, tmp_path: Path
) -> None:
    path = config(tmp_path, "flags: {kdd: {sleepInterval: 1h}}\n")
    del machine.environment["KDD_PRINTS_OUTPUT_FILE"]
    flags = ["--config-file", path, "--prints-output-file", str(machine.output)]
    command = [sys.executable, "-m", "cli", "run", "device-daemon", *flags]
    with subprocess.Popen(command, env=os.environ | machine.environment, stderr=subprocess.PIPE, text=True) as daemon:
        try:
            wait_until(machine.output.exists)
            machine.output.write_text("[]")
            daemon.send_signal(signal.SIGHUP)
            wait_until(lambda: machine.uuids == ["xpu-0"])
            config(tmp_path, "flags: {kdd: {sleepInterval: soon}}\n")
            machine.output.write_text("[]")
            daemon.send_signal(signal.SIGHUP)  # invalid options leave those in force
            wait_until(lambda: machine.uuids == ["xpu-0"])
            daemon.terminate()
            assert daemon.wait(60) == 0
        finally:
            daemon.kill()
        assert daemon.stderr is not None, "a pipe was requested"
        logged = daemon.stderr.read()
    assert not machine.output.exists()
    assert "the options stay as they are" in logged


def test_an_empty_list_is_an_empty_array() -> None:
    assert encode([]) == b"[]"
