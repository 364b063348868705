"""Debian's kernel for virtual machines: downloaded once by apt, unpacked into the cache and never installed.

The pinned package is checked against its digest. An archive that has replaced it offers a newer one, which apt checks
against the archive's signature.
"""

import hashlib
import io
import lzma
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cli.dev.binary_sources import cache_root
from shared.errors import KoordError

FAMILY = "linux-image-cloud-amd64"
DOWNLOAD_WITHIN_S = 900.0

AR_MAGIC = b"!<arch>\n"
AR_HEADER_BYTES = 60


class NoKernel(KoordError):
    """There is no kernel for the guest, nor a way to get one."""


class Package(NamedTuple):
    """A Debian package.

    Attributes:
        name: ends with the kernel's release.
        version: of the package.
        sha256: of its file; empty where apt alone checks it.
    """

    name: str
    version: str
    sha256: str = ""

    @property
    def folder(self) -> Path:
        """Where it is unpacked."""
        return cache_root() / f"{self.name}-{self.version}"


PINNED = Package(
    "linux-image-6.1.0-56-cloud-amd64",
    "6.1.192-2",
    "e7d02b943971edcb8790e256c02cfab3bca6c3d37c1bf25392a57c71300615ee",
)


class Kernel(NamedTuple):
    """An unpacked kernel.

    Attributes:
        image: the file that a virtual machine boots.
        modules: the folder of its modules.
    """

    image: Path
    modules: Path

    @property
    def release(self) -> str:
        """Returns what `uname -r` prints."""
        return self.modules.name


def provide_kernel() -> Kernel:
    """Returns the kernel of the cache; downloads it first where it is missing.

    Raises:
        NoKernel: apt is missing or offers none, or the file is not the pinned one.
    """
    if PINNED.folder.is_dir():
        return _kernel_in(PINNED.folder)
    if shutil.which("apt-get") is None:
        raise NoKernel(f"no kernel for the guest: on a machine with apt, put {PINNED.name} into {PINNED.folder}")
    failures = []
    for package in _offered():
        if package.folder.is_dir():
            return _kernel_in(package.folder)
        with tempfile.TemporaryDirectory() as folder:
            command = ["apt-get", "download", f"{package.name}={package.version}"]
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=DOWNLOAD_WITHIN_S
            )
            files = list(Path(folder).glob("*.deb"))
            if done.returncode == 0 and files:
                _unpack(package, files[0].read_bytes())
                return _kernel_in(package.folder)
            failures.append(done.stderr.strip())
    raise NoKernel(f"no kernel for the guest: run `apt-get update`; apt said: {' '.join(failures)[:400]}")


def _offered() -> Iterator[Package]:
    yield PINNED
    shown = subprocess.run(["apt-cache", "show", FAMILY], capture_output=True, text=True, check=False).stdout
    for name, version in re.findall(r"(linux-image-\S+-cloud-amd64) \(= ([^)]+)\)", shown):
        yield Package(name, version)


def _kernel_in(folder: Path) -> Kernel:
    images, modules = list(folder.glob("boot/vmlinuz-*")), list(folder.glob("**/lib/modules/*"))
    if len(images) != 1 or len(modules) != 1:
        raise NoKernel(f"{folder} does not hold one kernel and its modules: remove it, and it is fetched again")
    return Kernel(images[0], modules[0])


def _unpack(package: Package, content: bytes) -> None:
    """Unpacks a package into its folder, which appears once it is whole.

    Raises:
        NoKernel: the content is not the pinned one, or no package.
    """
    found = hashlib.sha256(content).hexdigest()
    if package.sha256 and found != package.sha256:
        raise NoKernel(f"{package.name} {package.version} has the sha256 {found} instead of {package.sha256}: not used")
    package.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=package.folder.parent) as partial:
        with tarfile.open(fileobj=io.BytesIO(_data_member(content))) as data:
            data.extractall(Path(partial) / "new", filter="data")
        (Path(partial) / "new").replace(package.folder)


def _data_member(content: bytes) -> bytes:
    """Returns the uncompressed tar file of a package, an `ar` archive."""
    if not content.startswith(AR_MAGIC):
        raise NoKernel("what apt downloaded is no Debian package")
    at = len(AR_MAGIC)
    while at + AR_HEADER_BYTES <= len(content):
        header = content[at : at + AR_HEADER_BYTES]
        size, begin = int(header[48:58]), at + AR_HEADER_BYTES
        if header[:16].rstrip(b" /") == b"data.tar.xz":
            return lzma.decompress(content[begin : begin + size])
        at = begin + size + size % 2
    raise NoKernel("the downloaded package has no data.tar.xz")
