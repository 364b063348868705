"""The folder of a system on this machine: its servers' data, its services' logs, and where other commands find it."""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import IO

import msgspec

from cli.credentials.secrets_file import write_private
from cli.supervisor.cluster_record import recorded_clusters
from cli.supervisor.endpoints import Endpoints
from shared.errors import KoordError

DEFAULT = Path(".koord")
_LOCK = "lock"
_RETRY_S = 0.05
_ENDPOINTS = "endpoints.json"
_DATABASE = "database"
"""File of a system whose database is on the Postgres of the folder above, which several share: its name."""


def holds_system(folder: Path) -> bool:
    """Returns whether a system has its data in the folder itself, not in one below it."""
    return (folder / _LOCK).exists() or (folder / "postgres").is_dir() or (folder / _DATABASE).is_file()


def systems_in(folder: Path) -> list[Path]:
    """Returns the folders of systems: the folder itself, and those directly below it.

    A folder whose Postgres those below it share has no log of its own.
    """
    below = [path for path in sorted(folder.glob("*")) if holds_system(path)]
    if any((path / _DATABASE).is_file() for path in below):
        return below
    return [folder, *below] if holds_system(folder) else below


def record_database(folder: Path, name: str) -> None:
    """Records that the system of a folder has its database on the Postgres of the folder above."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DATABASE).write_text(f"{name}\n")


def server_of(system: Path) -> tuple[Path, str]:
    """Returns the folder in which a system's Postgres lies, and the name of its database; empty for the usual one."""
    file = system / _DATABASE
    if (system / "postgres").is_dir() or not file.is_file():
        return system, ""
    return system.resolve().parent, file.read_text().strip()


def wal_on_another_disk(postgres: Path) -> Path | None:
    """Returns the folder of the write-ahead log of a Postgres in a folder, where it lies on a disk of its own."""
    wal = postgres / "data" / "pg_wal"
    try:
        return wal if wal.stat().st_dev != postgres.stat().st_dev else None
    except OSError:
        return None


class SeveralSystems(KoordError):
    """A folder has systems of several clusters, and none was chosen."""

    def __init__(self, folder: Path, found: Iterable[Path]) -> None:
        super().__init__(f"{folder} has several systems: choose one with --dir: {', '.join(map(str, found))}")


class FolderTaken(KoordError):
    """Another process holds the folder."""

    def __init__(self, folder: Path, holder: str, reader: str, *, shadow: bool = False) -> None:
        """Builds the message: which process uses the folder, and what to do.

        Args:
            holder: content of the folder's lock: the process id, and the command if that only reads the log; empty
                just after the start of a process.
            reader: the command that was refused, if it only reads the log; empty for a system.
            shadow: the refused system writes nothing, so that it may run beside the other.
        """
        process, _, other = holder.partition(" ")
        by = f" (process {process})" if process else ""
        if other:
            text = f"{folder}: `{other}`{by} reads the log of the stopped system; end it, or wait until it has ended"
        elif reader:
            text = f"{folder}: its system starts or stops{by}; try again in some seconds"
        else:
            remedy = (
                "each system has its log in a folder of its own, so give the one in shadow mode another: `koord up --shadow "
                "--kubeconfig FILE --dir FOLDER`"
                if shadow
                else "end it first: two systems of one cluster would write against each other"
            )
            text = f"a system runs in {folder} already{by}; {remedy}"
        super().__init__(text)


@contextmanager
def taken(folder: Path, *, patience_s: float = 0.0, reader: str = "", shadow: bool = False) -> Iterator[None]:
    """Holds the folder; a second system would ruin the first one's data.

    Args:
        patience_s: how long a command that reads the log of the stopped system is waited for.
        reader: the command that holds it where that only reads; empty for a system.
        shadow: the system writes nothing to its cluster.

    Raises:
        FolderTaken: another process holds it.
        KoordError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = (folder / _LOCK).open("a+")
    except PermissionError as error:
        raise KoordError(f"{folder}: {_whose(folder)}; {_FOREIGN}, or give another --dir") from error
    except OSError as error:
        raise KoordError(f"{folder} cannot be a system's folder ({error.strerror}); give another --dir") from error
    with held as lock:
        ends = time.monotonic() + patience_s
        while not _locked(lock):
            if time.monotonic() < ends and folder not in find_running(folder):
                time.sleep(_RETRY_S)
                continue
            lock.seek(0)
            raise FolderTaken(folder, lock.read().strip(), reader, shadow=shadow)
        lock.truncate(0)
        lock.write(f"{os.getpid()} {reader}\n")
        lock.flush()
        yield


_FOREIGN = "run the command as that user"


def _whose(folder: Path) -> str:
    """Returns whose the folder is, or the nearest one above it that exists, and that this user may not write there."""
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    try:
        owner = there.owner()
    except (KeyError, NotImplementedError):
        owner = f"uid {there.stat().st_uid}"
    if there.stat().st_uid == os.geteuid():
        return f"{there} is not writable; correct its rights (chmod u+w)"
    return f"{there} belongs to {owner}, and this user may not write there"


def _locked(lock: IO[str], how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def announced(folder: Path, endpoints: Endpoints) -> Iterator[None]:
    """Writes the addresses of the servers into the folder, for as long as they run."""
    file = folder / _ENDPOINTS
    write_private(file, msgspec.json.encode(endpoints).decode())
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


class NoSystem(KoordError):
    """No system is in a folder."""


def _up(folder: Path) -> str:
    """Returns the command that starts the system of a folder; one that is its folder's only one is started from above."""
    only = systems_in(folder)
    record = recorded_clusters(only[0]).get(only[0]) if len(only) == 1 else None
    place, _ = server_of(folder)
    start = record.start if record else "koord up"
    return start if place == DEFAULT else f"{start} --dir {quote(str(place))}"


def find_endpoints(folder: Path) -> Endpoints:
    """Where the servers are: KOORD_POSTGRES and KOORD_NATS, else those of the system that runs in `folder` or below it.

    Raises:
        KoordError: neither is there, several systems run, or the system starts or stops.
    """
    postgres, nats = os.environ.get("KOORD_POSTGRES", ""), os.environ.get("KOORD_NATS", "")
    services = dict(part.partition("=")[::2] for part in os.environ.get("KOORD_STATUSZ", "").split(",") if "=" in part)
    if postgres and nats:
        return Endpoints(postgres, nats, services=services)
    running = find_running(folder)
    if len(running) > 1:
        raise SeveralSystems(folder, running)
    found = next(iter(running.values()), None)
    if not found and not postgres:
        stopped = systems_in(folder)
        _refuse_starting(stopped)
        if len(stopped) > 1:
            raise SeveralSystems(folder, stopped)
        raise NoSystem(
            f"no system runs in {folder}; name the folder of one with --dir (or `koord context use`), its database in "
            f"KOORD_POSTGRES, or start one with `{_up(folder)}`"
        )
    is_kept = found is not None and not postgres and not services
    if found and not postgres:
        services = {**found.services, **services}
    return Endpoints(
        postgres or (found.postgres if found else ""),
        nats or (found.nats if found else ""),
        pid=found.pid if found and is_kept else 0,
        services=services,
        credentials=found.credentials if found else "",
    )


def _refuse_starting(systems: Iterable[Path]) -> None:
    """Raises FolderTaken for one that is held and has no addresses: it starts or stops, unless a command reads its log."""
    for system in systems:
        holder = _holder(system)
        if holder and not holder.partition(" ")[2]:
            raise FolderTaken(system, holder, reader="koord")


def _holder(folder: Path) -> str:
    """Returns the content of the folder's lock; empty where no process holds it, or has not written it yet."""
    try:
        with (folder / _LOCK).open() as lock:
            return "" if _locked(lock, fcntl.LOCK_SH) else lock.read().strip()
    except OSError:
        return ""


def find_system(folder: Path) -> Path:
    """Returns the folder of the system that runs in `folder` or directly below it, else of the only one there.

    Raises:
        KoordError: there is none, or several.
    """
    found = list(find_running(folder)) or systems_in(folder)
    if len(found) > 1:
        raise SeveralSystems(folder, found)
    if not found:
        raise NoSystem(f"no system has its data in {folder}; start one with `{_up(folder)}`")
    return found[0]


def find_running(folder: Path) -> dict[Path, Endpoints]:
    """Returns the systems that run in the folder or directly below it."""
    files = [path / _ENDPOINTS for path in (folder, *sorted(folder.glob("*"))) if (path / _ENDPOINTS).exists()]
    found = {file.parent: msgspec.json.decode(file.read_bytes(), type=Endpoints) for file in files}
    # A process that was killed could not remove the file.
    return {path: endpoints for path, endpoints in found.items() if Path(f"/proc/{endpoints.pid}").exists()}


def find_owner(folder: Path) -> str:
    """The database with its owner's login, who alone may migrate: KOORD_POSTGRES, else that of the system that runs in
    `folder`.

    Raises:
        KoordError: neither is there.
    """
    from cli.credentials.credentials_folder import env_file, read_env
    from cli.credentials.secrets_file import OWNER

    if given := os.environ.get("KOORD_POSTGRES", ""):
        return given
    found = find_endpoints(folder)
    if not found.credentials:
        return found.postgres
    return read_env(env_file(Path(found.credentials), OWNER))["KOORD_POSTGRES"]
