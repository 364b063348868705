"""Folders that are made once in a test run and copied by each test that needs one: Postgres with all logins, etcd with
k8s/base.

All workers of a run share them. A copy takes a tenth of a second where making one takes seconds of a processor.
"""

import asyncio
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster
from cli.supervisor.system_servers import Servers

BASE = Path(__file__).parents[2] / "k8s" / "base"
_OF_BASE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/koordstream-gateway"
ROOT = "KOORD_TEST_TEMPLATES"
"""Variable that names the folder of the templates; tests/conftest.py sets it for all workers."""


def copy_installation(directory: Path) -> Path:
    """Lays out a folder for `koord up --dir` or `Servers`: migrated Postgres and a login for each service.

    Returns it.
    """
    template = _made_once("installation", _make_installation)
    directory.mkdir(parents=True, exist_ok=True)
    for part in ("postgres", "credentials"):
        _copy(template / part, directory / part)
    return directory


def copy_postgres(directory: Path) -> Path:
    """Lays out a folder for `EmbeddedPostgres` whose data directory exists already. Returns it."""
    _copy(_made_once("installation", _make_installation) / "postgres", directory)
    return directory


def copy_cluster(directory: Path) -> Path:
    """Lays out a folder for `Cluster` on which the CRDs and k8s/base were applied. Returns it."""
    template = _made_once("cluster", _make_cluster)
    for part in ("pki", "etcd"):
        _copy(template / part, directory / part)
    return directory


def install_base(cluster: Cluster) -> None:
    """Applies k8s/base unless the cluster has it."""
    try:
        cluster.api.call("GET", _OF_BASE)
    except ApiRefused:
        cluster.apply(BASE)


def _make_installation(directory: Path) -> None:
    # In a process of its own: the caller may be inside an event loop, or have set variables for its own test.
    env = {name: value for name, value in os.environ.items() if not name.startswith("KOORD_")}
    command = [sys.executable, "-m", "tests.support.prepared_folders", str(directory)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], env=env)


async def _start_and_stop(directory: Path) -> None:
    async with Servers(directory, alone=True):
        pass


def _make_cluster(directory: Path) -> None:
    with Cluster(directory) as cluster:
        cluster.apply_crds()
        cluster.apply(BASE)


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    root = Path(os.environ[ROOT])
    root.mkdir(parents=True, exist_ok=True)
    whole = root / name
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            unfinished = root / f"{name}.new"
            make(unfinished)
            unfinished.rename(whole)
    return whole


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Keeps owners and modes. The WALs of Postgres and etcd were filled with zeros in advance, which need no space.
    subprocess.run(["cp", "-a", "--reflink=auto", "--sparse=always", "-T", source, target], check=True)


if __name__ == "__main__":
    asyncio.run(_start_and_stop(Path(sys.argv[1])))
