"""The folder of an installation's credentials: what servers, services and nodes need, made from the book and the
declarations.

Everything but the book and the authority is made again each time; so a new release, whose declarations differ, needs
one command.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from cli.credentials import nats_config, permissions
from cli.credentials.permissions import Login
from cli.credentials.secrets_file import OWNER, Book, write_private
from shared.agents import subjects
from shared.bus.login import url_of
from shared.errors import KoordError

OWNER_ROLE = "koord"
"""The superuser of a Postgres of one's own."""


class NoNodeOfThatName(KoordError):
    """A node's token would be another login's name."""

    def __init__(self, token: str) -> None:
        super().__init__(f"no node can be called {token!r} here: it is the name of a login of the system's own")


class Reach(NamedTuple):
    """How clients reach the servers.

    Attributes:
        postgres: `host:port/database`, or a whole URL that every login uses as it is.
        nats: `host:port`, or such a URL.
        mqtt: `host:port`, such a URL, or empty.
        tls: whether the servers have certificates, and the bus knows NKEYs.
        files: where a login's NKEY and the authority lie, as its process sees it; the login's name is put for `{}`.
    """

    postgres: str
    nats: str
    mqtt: str = ""
    tls: bool = False
    files: str = ""


def with_nodes(declared: Iterable[Login], book: Book) -> list[Login]:
    """The logins that declarations give, and those of the book's nodes."""
    return [*declared, *(permissions.node(token) for token in book.nodes)]


def add_node(book: Book, node: str) -> str:
    """Gives a node a login; its token.

    Raises:
        NoNodeOfThatName: the name is taken.
        BadNode: it is none.
    """
    token = subjects.token(node)
    if token in permissions.RESERVED:
        raise NoNodeOfThatName(token)
    if token not in book.nodes:
        book.nodes.append(token)
    return token


def users_conf(book: Book, logins: Iterable[Login], *, nkeys: bool) -> str:
    """The bus' users; secrets that are missing are made."""
    known = list(logins)
    return nats_config.users(known, {login.name: book.secret(login.name) for login in known}, nkeys=nkeys)


def environment(login: Login, book: Book, reach: Reach, shards: int) -> dict[str, str]:
    """Environment variables of a login's process."""
    secret = book.secret(login.name)
    files = reach.files.format(login.name)
    found: dict[str, str] = {}
    if login.log is not None:
        found["KOORD_POSTGRES"] = _postgres(reach, login.log.role, secret.password)
        if reach.tls:
            found["PGSSLROOTCERT"] = f"{files}/ca.crt"
    by_key = reach.tls and login.log is not None
    if "://" in reach.nats:
        found["KOORD_NATS"] = reach.nats
    else:
        scheme = "tls" if reach.tls else "nats"
        password = "" if by_key else secret.password
        found["KOORD_NATS"] = url_of(f"{scheme}://{reach.nats}", login.bus.user, password)
        if by_key:
            found["KOORD_NATS_NKEY"] = f"{files}/nkey"
        if reach.tls:
            found["KOORD_NATS_CA"] = f"{files}/ca.crt"
    if login.bus.mqtt and reach.mqtt:
        if "://" in reach.mqtt:
            found["KOORD_MQTT"] = reach.mqtt
        else:
            scheme = "mqtts" if reach.tls else "mqtt"
            found["KOORD_MQTT"] = url_of(f"{scheme}://{reach.mqtt}", login.bus.user, secret.password)
    if login.log is not None:
        found["KOORD_METRICS_SHARDS"] = str(shards)
        context, _, shard = login.log.writes.rpartition("-")
        if context and shard.isdecimal():
            found["KOORD_SHARD"] = shard
    return found


def write_environments(folder: Path, logins: Iterable[Login], book: Book, reach: Reach) -> None:
    """A file of variables for each login: below `nodes` for nodes, below `env` for all others."""
    kept = set()
    for login in logins:
        path = env_file(folder, login.name, node=login.log is None)
        write_private(path, env_text(environment(login, book, reach, book.shards)))
        kept.add(path)
    for path in (*folder.glob("env/*.env"), *folder.glob("nodes/*.env")):
        if path not in kept and path.stem not in {OWNER, "postgres"}:
            path.unlink()


def write_owner(folder: Path, url: str) -> None:
    """The owner of the tables, for `koord migrate` alone."""
    write_private(folder / "env" / f"{OWNER}.env", env_text({"KOORD_POSTGRES": url}))


def env_file(folder: Path, name: str, *, node: bool = False) -> Path:
    """Where a login's variables are."""
    return folder / ("nodes" if node else "env") / f"{name}.env"


def env_text(variables: Mapping[str, str]) -> str:
    """Lines that a shell and a container's `env_file` read alike: no value has a sign that a shell would take for its
    own.
    """
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def read_env(path: Path) -> dict[str, str]:
    """The variables of a file.

    Raises:
        KoordError: it is not there.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise KoordError(
            f"{path} cannot be read ({error.strerror}); `koord credentials init {path.parents[1]}` makes it"
        ) from error
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def _postgres(reach: Reach, role: str, password: str) -> str:
    if "://" in reach.postgres:
        return reach.postgres
    tls = "?sslmode=verify-full" if reach.tls else ""
    return url_of(f"postgresql://{reach.postgres}", role, password) + tls
