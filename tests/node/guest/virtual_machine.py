"""A virtual machine for one run of a program on a kernel of its own, with the host's files read-only.

QEMU emulates the processor: KVM within virtual machines is missing, or not whole, on many of those that run tests. It
needs root, QEMU, virtiofsd, and apt or a cached kernel.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.dev.binaries import NoNetwork, ProgramsMissing, provide
from shared.errors import KoordError
from tests.node.guest.initial_files import Program, archive
from tests.node.guest.kernel_package import Kernel, NoKernel, provide_kernel

QEMU = "qemu-system-x86_64"
VIRTIOFSD = ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")
CPUS = 8
"""As many as the node of the tests of the QoS manager has."""
MEMORY = "2G"
ARGUMENTS = "console=ttyS0 quiet loglevel=3 panic=-1 cgroup_no_v1=all"
SOCKET_WITHIN_S = 60.0


class NoGuest(KoordError):
    """This machine cannot run a guest."""


class GuestRun(NamedTuple):
    """A guest that has ended.

    Attributes:
        kernel: its release.
        console: all that was printed.
        exit_status: of the program; None when the guest ended before it.
        seconds: how long it ran.
    """

    kernel: str
    console: str
    exit_status: int | None
    seconds: float


def check_machine() -> None:
    """Checks that a guest can run here.

    Raises:
        NoGuest: it cannot; the text names what to install.
    """
    if os.uname().machine != "x86_64":
        raise NoGuest("a guest needs x86-64")
    if os.geteuid() != 0:
        raise NoGuest("a guest needs root: it reads the host's files as root")
    if shutil.which(QEMU) is None or _virtiofsd() is None:
        raise NoGuest("no guest without QEMU: apt-get install qemu-system-x86 virtiofsd (one package in Debian 12)")


def run_in_guest(program: Program, files: Mapping[str, str], within_s: float) -> GuestRun:
    """Boots a guest, runs a program in it, and waits for its end.

    Args:
        files: path -> text of files over the host's.
        within_s: after which the guest is switched off.

    Raises:
        NoGuest, NoKernel: nothing was started.
    """
    check_machine()
    kernel, init = provide_kernel(), provide("guestinit")["guestinit"]
    with tempfile.TemporaryDirectory(prefix="koord-guest-") as name:
        folder = Path(name)
        (folder / "initrd").write_bytes(archive(kernel, init, program, files))
        began = time.monotonic()
        with _host_files(folder):
            console = _boot(kernel, folder, within_s)
    status = re.search(r"^koord-guest: exited (\d+)\s*$", console, re.MULTILINE)
    seconds = time.monotonic() - began
    return GuestRun(kernel.release, console, int(status[1]) if status else None, seconds)


def run_or_skip(program: Program, files: Mapping[str, str], within_s: float) -> GuestRun:
    """Runs a guest; the test is skipped, with the reason, on a machine that cannot run one."""
    try:
        return run_in_guest(program, files, within_s)
    except (NoGuest, NoKernel, ProgramsMissing, NoNetwork) as error:
        pytest.skip(str(error).splitlines()[0])


def _virtiofsd() -> str | None:
    return next((path for path in VIRTIOFSD if os.access(path, os.X_OK)), shutil.which("virtiofsd"))


@contextmanager
def _host_files(folder: Path) -> Iterator[None]:
    """Serves the host's files to a guest on a socket in the folder."""
    socket = folder / "files.sock"
    command = [_virtiofsd() or "", f"--socket-path={socket}", "-o", "source=/,cache=always,sandbox=chroot"]
    with (folder / "files.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            until = time.monotonic() + SOCKET_WITHIN_S
            while not socket.exists():
                if server.poll() is not None or time.monotonic() > until:
                    raise NoGuest(f"the host's files are not served: {(folder / 'files.log').read_text()[-400:]}")
                time.sleep(0.05)
            yield
        finally:
            server.kill()


def _boot(kernel: Kernel, folder: Path, within_s: float) -> str:
    """Returns what the guest printed, and after it what QEMU did."""
    command = [
        QEMU, "-accel", "tcg,thread=multi", "-cpu", "max",
        "-machine", "q35,memory-backend=memory", "-smp", str(CPUS), "-m", MEMORY,
        "-object", f"memory-backend-memfd,id=memory,size={MEMORY},share=on",
        "-kernel", str(kernel.image), "-initrd", str(folder / "initrd"), "-append", ARGUMENTS,
        "-chardev", f"socket,id=files,path={folder / 'files.sock'}",
        "-device", "vhost-user-fs-pci,chardev=files,tag=host",
        "-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{folder / 'console'}",
    ]  # fmt: skip
    with (folder / "qemu.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as machine:
        try:
            machine.wait(within_s)
        except subprocess.TimeoutExpired:
            machine.kill()
    console = folder / "console"
    text = console.read_text(errors="replace") if console.exists() else ""
    return text.replace("\r", "") + (folder / "qemu.log").read_text()
