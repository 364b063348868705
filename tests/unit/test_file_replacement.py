"""Files are replaced whole or not at all."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shared.file_replacement import replace_file

PROGRAM = """
import resource, sys
from pathlib import Path
from shared.file_replacement import replace_file
resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))
replace_file(Path(sys.argv[1]), b"longer than the limit")
"""


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    replace_file(file, b"before")
    ended = subprocess.run([sys.executable, "-c", PROGRAM, file], capture_output=True, text=True, check=False)
    assert "File too large" in ended.stderr
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("kept.json", b"before")]


def test_what_an_earlier_process_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".kept.json.new").write_bytes(b"half")
    replace_file(tmp_path / "kept.json", b"whole", sync=True)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("kept.json", b"whole")]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_mode_is_that_of_the_new_file(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.touch(mode=0o666)
    replace_file(file, b"x", mode=mode)
    assert stat.S_IMODE(file.stat().st_mode) == mode
