"""docs/devices.md: its files are written, its commands are run, and their outputs are compared with the printed ones."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import koord

DOCUMENT = (Path(__file__).parents[3] / "docs" / "devices.md").read_text()
FILES = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", DOCUMENT, re.DOTALL))
EXAMPLE = Path(__file__).parents[3] / "k8s" / "examples" / "scheduler-config-loadaware.yaml"
COMMANDS = re.findall(r"```console\n\$ koord (.*?)\n(.*?)```", DOCUMENT, re.DOTALL)


def compared(output: str) -> list[str]:
    """The lines of an output, with one word for the time that it took."""
    return [re.sub(r"^(time of the engine +)\S+ s$", r"\1TIME", line.rstrip()) for line in output.splitlines()]


def test_there_are_files_and_commands() -> None:
    assert len(FILES) == 7
    assert len(COMMANDS) == 4


@pytest.mark.parametrize(("command", "printed"), COMMANDS, ids=[command[-40:] for command, _ in COMMANDS])
@pytest.mark.parametrize("policy", ["", "config.yaml", str(EXAMPLE)], ids=["default", "of the page", "example"])
def test_the_outputs_are_those_of_the_commands(
    policy: str, command: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    given = (*command.split(), *(("--policy", policy) if policy and "--policy" not in command else ()))
    result = CliRunner().invoke(koord, given)
    assert result.exit_code == 0, result.output
    assert compared(result.stdout) == compared(printed)
