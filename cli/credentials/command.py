"""`koord credentials`: logins for servers of one's own, and for nodes."""

import asyncio
from pathlib import Path

import click
from click.core import ParameterSource

from cli.credentials import secrets_file as books
from cli.credentials.secrets_file import Book, NoBook
from cli.service_list import SERVICES
from cli.terminal.lazy_group import Group
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table
from shared.errors import KoordError

PORTS = {"nats": "4222", "mqtt": "8883", "postgres": "5432"}


class NotAsDeclared(KoordError):
    """A folder of credentials is not what it should be."""


class NoSuchLogin(KoordError):
    """The folder has no login of that name."""


@click.group(cls=Group)
def credentials() -> None:
    """Make and check the logins of services, nodes, operator and auditor."""


directory = click.argument("directory", type=click.Path(file_okay=False, path_type=Path))


@credentials.command()
@directory
@click.option("--nats", help="HOST:PORT at which clients reach NATS.  [default: nats:4222]")
@click.option("--mqtt", help="HOST:PORT at which agents reach its MQTT listener.  [default: NATS' host, port 8883]")
@click.option("--postgres", help="HOST:PORT/DATABASE at which clients reach Postgres.  [default: postgres:5432/koord]")
@click.option("--mount", help="Where a container finds its folder of `logins`.  [default: /etc/koord; '' for here]")
@click.option("--shards", type=click.IntRange(1, 256), help="KOORD_METRICS_SHARDS of the installation.  [default: 1]")
@click.option(
    "--without",
    multiple=True,
    metavar="SERVICE",
    type=click.Choice(SERVICES),
    help=f"A service that gets no login, now and later, of {', '.join(SERVICES)}; repeatable.",
)
@click.option(
    "--with",
    "again",
    multiple=True,
    metavar="SERVICE",
    type=click.Choice(SERVICES),
    help="A service that gets a login after all; repeatable.",
)
def init(
    *,
    directory: Path,
    nats: str | None,
    mqtt: str | None,
    postgres: str | None,
    mount: str | None,
    shards: int | None,
    without: tuple[str, ...],
    again: tuple[str, ...],
) -> None:
    """Make everything that servers, services and people need to meet each other.

    Passwords, NKEYs, a certificate authority and both servers' certificates, configurations and roles; docs/security.md
    names the files. Repeated, it keeps secrets and earlier options, and brings all else to the declarations of
    this release; that is what an upgrade needs.
    """
    from cli.credentials.tls_files import install, logins_of

    try:
        book = books.read(directory)
    except NoBook:
        book = Book(nats="nats:4222", postgres="postgres:5432/koord", mount="/etc/koord")
    book.nats = _place(nats or book.nats, "nats")
    book.mqtt = _place(mqtt or book.mqtt or book.nats.rpartition(":")[0], "mqtt")
    book.postgres = _place(postgres or book.postgres, "postgres")
    book.mount = book.mount if mount is None else mount
    book.shards = shards or book.shards
    book.without = [name for name in SERVICES if name in {*book.without, *without} - {*again}]
    book.services = [name for name in SERVICES if name not in book.without]
    changed = install(directory, book, logins_of(book))
    if changed:
        click.echo(f"{len(changed)} files are new in {directory}: {', '.join(changed)}")
        click.echo(_next_steps(directory), err=True)
    else:
        click.echo(f"{directory} agrees with the manifests of this release")


@credentials.command()
@click.argument("name")
@click.option(
    "--in", "directory", type=click.Path(path_type=Path), help="The folder that `init` made; else that of --dir."
)
@folder_option
def node(*, name: str, directory: Path | None, folder: Path) -> None:
    """Give the agent of the Kubernetes node NAME a login.

    It may publish that node's reports and actions and receive its own messages, by NATS or MQTT, and nothing else. A
    system that `koord up` runs in --dir lets it in at once; a NATS of your own when it reloads its configuration.
    """
    from cli.credentials.credentials_folder import add_node, env_file
    from cli.supervisor.system_folder import find_system

    where = directory or find_system(folder) / "credentials"
    book = books.read(where)
    token = add_node(book, name)
    if directory is None:
        book.secret(token)
        books.write(where, book)
        click.echo(f"{name} gets its login within a second while `koord up` runs: {env_file(where, token, node=True)}")
        return
    from cli.credentials.tls_files import install, logins_of

    install(where, book, logins_of(book))
    click.echo(str(env_file(where, token, node=True)))
    click.echo("let NATS reload: kill -HUP its process, or docker compose kill -s HUP nats", err=True)


@credentials.command()
@directory
@click.argument("login")
def rotate(*, directory: Path, login: str) -> None:
    """Give LOGIN a new password and NKEY: a service such as scheduler, operator, auditor, owner, or a node."""
    from cli.credentials.tls_files import install, logins_of

    book = books.read(directory)
    if login not in book.secrets:
        raise NoSuchLogin(f"there is no login {login!r}; there are {', '.join(sorted(book.secrets))}")
    book.rotate(login)
    install(directory, book, logins_of(book))
    if login == books.OWNER:
        click.echo("as the owner: alter role koord password '...', with the password of env/owner.env", err=True)
    click.echo(_next_steps(directory), err=True)


@credentials.command(name="show")
@directory
@click.argument("login", default="")
@output_option
def show_command(*, directory: Path, login: str, output: Format) -> None:
    """Show what each login may do, or every right of one LOGIN; no secret."""
    from cli.credentials.tls_files import logins_of

    every = logins_of(books.read(directory))
    found = [one for one in every if login in ("", one.name)]
    if not found:
        raise NoSuchLogin(f"there is no login {login!r}; there are {', '.join(sorted(one.name for one in every))}")
    if output != "table":
        show(
            [
                {
                    "login": one.name,
                    "bus": one.bus._asdict(),
                    "database": None if one.log is None else one.log._asdict(),
                }
                for one in found
            ],
            output,
        )
        return
    rows: list[tuple[object, ...]] = []
    for one in found:
        reads = "all" if one.log and one.log.reads is None else " ".join(one.log.reads or ()) if one.log else ""
        writes = one.log.writes if one.log else ""
        if login:
            click.echo(f"{one.name}: {one.bus.user} on the bus; writes {writes or 'no log'}; reads {reads or 'none'}")
            rows = [("publishes", subject) for subject in one.bus.publish]
            rows += [("subscribes", subject) for subject in one.bus.subscribe]
            show_table(("right", "subject"), rows)
            return
        rows.append((one.name, one.bus.user, writes, reads, len(one.bus.publish), len(one.bus.subscribe)))
    show_table(("login", "bus user", "writes", "reads", "publishes on", "subscribes to"), rows)
    click.echo("the subjects: koord credentials show DIRECTORY LOGIN, or -o json", err=True)


@credentials.command(name="check")
@directory
@output_option
def check_command(*, directory: Path, output: Format) -> None:
    """Check a folder: every login of this release is there, nothing is out of date, nobody else can read it."""
    from cli.credentials.check import check

    faults = check(directory)
    if output != "table":
        show([one._asdict() for one in faults], output)
    elif faults:
        show_table(("file", "what", "what to do"), faults)
    else:
        click.echo(f"{directory} agrees with the manifests of this release")
    if faults:
        raise NotAsDeclared(
            f"{len(faults)} files of {directory} are not as they should be: {faults[0].file} {faults[0].what}"
        )


@credentials.command(name="secrets")
@directory
@click.option("--namespace", default="koordinator-system", show_default=True, help="Where the services run.")
def secrets_command(*, directory: Path, namespace: str) -> None:
    """Print the folder as Kubernetes Secrets, one login's apart from the others': `... | kubectl apply -f -`.

    They hold passwords. The logins of nodes and people are not among them: a node's lies on the node.
    """
    import json

    from cli.credentials.kubernetes_secrets import secrets
    from cli.credentials.tls_files import logins_of

    book = books.read(directory)
    click.echo(json.dumps(secrets(directory, logins_of(book), namespace, book.mount)))


@credentials.command()
@directory
@click.option("--owner", envvar="KOORD_OWNER", help="The URL of a superuser, or of a role that may make roles.")
def postgres(*, directory: Path, owner: str | None) -> None:
    """Make the roles on a Postgres that runs, or give them their new passwords, and grant what they may do.

    Without --owner it is the login of env/owner.env. The database must have been migrated for the grants; `koord
    migrate` grants as well.
    """
    from cli.credentials.credentials_folder import env_file

    source = click.get_current_context().get_parameter_source("owner")
    named = {ParameterSource.COMMANDLINE: "--owner", ParameterSource.ENVIRONMENT: "KOORD_OWNER"}
    try:
        asyncio.run(_postgres(directory, owner))
    except KoordError as error:
        # The advice about a database names the variable of services, which this command does not read.
        variable = named.get(source) if source else None
        its_own = variable or f"KOORD_POSTGRES of {env_file(directory, books.OWNER)}"
        raise KoordError(str(error).replace("KOORD_POSTGRES", its_own)) from error


async def _postgres(directory: Path, owner: str | None) -> None:
    import os

    from cli.credentials.credentials_folder import env_file, read_env
    from cli.credentials.grants_at_migration import grant
    from cli.credentials.postgres_roles import roles
    from cli.credentials.tls_files import logins_of
    from shared.log.admin.run_sql import run_script
    from shared.log.admin.session import opened

    book = books.read(directory)
    logins = logins_of(book)
    if owner is None:
        found = read_env(env_file(directory, books.OWNER))
        owner = found["KOORD_POSTGRES"]
        os.environ.setdefault("PGSSLROOTCERT", str(directory / "ca.crt"))
    async with opened(owner) as database:
        await run_script(database, roles(logins, book.secrets))
        granted = await grant(database, logins)
    click.echo(f"{len(granted)} roles may do what their services declare")


def _place(given: str, kind: str) -> str:
    """`host:port` with the port that is usual, and for Postgres the database."""
    place, _, database = given.partition("/")
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = place, PORTS[kind]
    if not host or "@" in host or "//" in given:
        raise click.UsageError(f"--{kind} {given!r} is no HOST:PORT{'/DATABASE' if kind == 'postgres' else ''}")
    return f"{host}:{port}" + (f"/{database or 'koord'}" if kind == "postgres" else "")


def _next_steps(directory: Path) -> str:
    return (
        f"NATS: nats-server --config {directory}/nats/nats.conf; a running one reloads at SIGHUP\n"
        f"Postgres: psql -f {directory}/postgres/roles.sql, or `koord credentials postgres {directory}`; then `koord migrate`"
    )
