"""The guest's initial file system: a cpio archive of its first program, kernel modules, and files over the host's."""

import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.node.guest.kernel_package import Kernel, NoKernel

MODULES = ("virtio_pci", "virtiofs", "overlay")
"""The host's files, and what is written over them."""

FOLDER, FILE, EXECUTABLE = 0o040755, 0o100644, 0o100755


class Program(NamedTuple):
    """The program that the guest runs.

    Attributes:
        argv: its path and arguments.
        folder: in which it starts.
        environment: all of its variables.
        first: it becomes process 1.
    """

    argv: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    first: bool = False


def archive(kernel: Kernel, init: Path, program: Program, files: Mapping[str, str]) -> bytes:
    """Returns the archive.

    Args:
        init: the program of tests/node/tools/guestinit.
        files: path -> text of files that lie over the host's.
    """
    description = {
        "argv": list(program.argv),
        "env": [f"{name}={text}" for name, text in program.environment.items()],
        "folder": str(program.folder),
        "first": program.first,
    }
    content = {"init": init.read_bytes(), "program.json": json.dumps(description).encode()}
    for number, (name, module) in enumerate(_with_dependencies(kernel, MODULES)):
        content[f"modules/{number:02}-{name}.ko"] = module
    for path, text in files.items():
        content[f"files/{path.strip('/')}"] = text.encode()
    return b"".join(_cpio(content))


def _with_dependencies(kernel: Kernel, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yields name and content of modules, each after those that it needs, once.

    Raises:
        NoKernel: the kernel has no such module.
    """
    files = {path.name.partition(".")[0].replace("-", "_"): path for path in kernel.modules.rglob("*.ko*")}
    done: set[str] = set()

    def load(name: str) -> Iterator[tuple[str, bytes]]:
        if name in done:
            return
        done.add(name)
        if name not in files:
            raise NoKernel(f"kernel {kernel.release} has no module {name}")
        content = files[name].read_bytes()
        if files[name].suffix == ".xz":
            content = lzma.decompress(content)
        needed = re.search(rb"\0depends=([^\0]*)\0", content)
        for each in (needed[1].decode() if needed else "").split(","):
            if each:
                yield from load(each.replace("-", "_"))
        yield name, content

    for name in names:
        yield from load(name)


def _cpio(content: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yields the records of an archive in the format `newc`: folders before what is in them."""
    folders = {str(parent) for path in content for parent in Path(path).parents if str(parent) != "."}
    yield from (_record(folder, FOLDER, b"") for folder in sorted(folders))
    yield from (_record(path, EXECUTABLE if path == "init" else FILE, text) for path, text in content.items())
    yield _record("TRAILER!!!", 0, b"")


def _record(path: str, mode: int, text: bytes) -> bytes:
    name = path.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(text), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(head) + _padded(text)


def _padded(text: bytes) -> bytes:
    return text + b"\0" * (-len(text) % 4)
