"""`koord context`: the named systems, and the one that commands mean."""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import click

from cli.system_contexts.chosen_system import CONTEXT, DEFAULT_FOLDER, variables_of
from cli.system_contexts.contexts_file import SERVERS, Contexts, SystemContext, changed_contexts, read_contexts
from cli.terminal import name_completion
from cli.terminal.lazy_group import Group
from cli.terminal.options import outputs
from cli.terminal.output import Format, show, show_table
from shared.errors import KoordError

_PASSWORD = re.compile(r"(?<=://)([^/@]*):[^/@]*(?=@)")
_name = click.argument("name", shell_complete=name_completion.system_contexts)


@click.group(cls=Group)
def context() -> None:
    """Name systems, and choose the one that commands mean."""


@context.command(name="list")
@outputs("table", "name", "json", "yaml")
@click.option("--no-headers", is_flag=True, help="Leave out the line of titles.")
def list_command(*, output: Format, no_headers: bool) -> None:
    """List the contexts; `*` marks the one in use."""
    found = read_contexts()
    current = _current(found)
    if output == "name":
        click.echo("".join(f"{name}\n" for name in sorted(found.contexts)), nl=False)
    elif output == "table":
        if not found.contexts:
            click.echo("No contexts found; `koord context set NAME --dir DIR` makes one.", err=True)
            return
        rows = [("*" if name == current else "", name, _place(each)) for name, each in sorted(found.contexts.items())]
        show_table(("current", "name", "system"), rows, header=not no_headers)
    else:
        show({"items": [_shown(found, name) for name in sorted(found.contexts)]}, output)


@context.command()
@click.argument("name", required=False, shell_complete=name_completion.system_contexts)
@click.option("--none", is_flag=True, help=f"Use no context: commands mean {DEFAULT_FOLDER} again.")
def use(*, name: str | None, none: bool) -> None:
    """Let commands mean this system from now on."""
    if none == bool(name):
        raise click.UsageError("give the name of a context, or --none")
    with changed_contexts() as found:
        if name:
            found.find(name)
        found.current = name or ""
    click.echo(f"Commands use context {name}." if name else f"Commands use {DEFAULT_FOLDER}.")
    if (named := os.environ.get(CONTEXT, "")) and named != name:
        click.echo(f"koord: {CONTEXT}={named} outranks it in this shell", err=True)


@context.command(name="show")
@click.argument("name", required=False, shell_complete=name_completion.system_contexts)
@outputs("table", "name", "json", "yaml")
def show_command(*, name: str | None, output: Format) -> None:
    """Show a context, or the one in use; passwords are left out."""
    found = read_contexts()
    name = name or _current(found)
    if not name:
        raise KoordError(
            f"no context is in use, so commands mean {DEFAULT_FOLDER}; `koord context use NAME` chooses one"
        )
    shown = _shown(found, name)
    if output == "name":
        click.echo(name)
    elif output == "table":
        rows = [(key, value if isinstance(value, str) else str(value).lower()) for key, value in shown.items()]
        show_table(("field", "value"), rows)
    else:
        show(shown, output)


@context.command(name="set")
@_name
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), help="The folder of a `koord up`, which may be stopped."
)
@click.option(
    "--env-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Variables of servers, read at each use, such as env/operator.env of `koord credentials init`.",
)
@click.option("--postgres", help="postgresql://user:password@host:port/database")
@click.option("--postgres-ca", type=click.Path(exists=True, dir_okay=False), help="Authority of Postgres' certificate.")
@click.option("--nats", help="nats://user:password@host:port, or tls://user@host:port")
@click.option("--nats-nkey", type=click.Path(exists=True, dir_okay=False), help="File with the seed of the login.")
@click.option("--nats-ca", type=click.Path(exists=True, dir_okay=False), help="Authority of the bus' certificate.")
@click.option("--statusz", help="scheduler=HOST:PORT,... for `koord top`.")
@click.option("--use", "is_used", is_flag=True, help="Use it from now on.")
def set_command(*, name: str, folder: Path | None, env_file: Path | None, is_used: bool, **servers: str | None) -> None:
    """Name a system: the folder of a `koord up`, or servers and the login to use there.

    A context of this name is replaced.
    """
    if not re.fullmatch(r"[\w.@-]+", name):
        raise click.UsageError(f"{name!r} is no name; use letters, digits and ._@-")
    variables = {
        variable: _absolute(option, value)
        for variable, option in SERVERS.items()
        if (value := servers[option.removeprefix("--").replace("-", "_")])
    }
    if sum(map(bool, (folder, env_file, variables))) != 1:
        raise click.UsageError("give --dir, or --env-file, or the URLs of servers")
    if variables and not urlsplit(variables.get("KOORD_POSTGRES", "")).scheme.startswith("postgres"):
        raise click.UsageError("--postgres is needed: postgresql://user:password@host:port/database")
    if env_file:
        variables_of(SystemContext("", str(env_file), {}))
    directory, variables_file = (str(path.absolute()) if path else "" for path in (folder, env_file))
    with changed_contexts() as found:
        verb = "is replaced" if name in found.contexts else "is set"
        found.contexts[name] = SystemContext(directory, variables_file, variables)
        if is_used:
            found.current = name
        is_current = found.current == name
    click.echo(f"Context {name} {verb}" + (", and in use." if is_current else f"; `koord context use {name}` uses it."))


@context.command()
@_name
def delete(*, name: str) -> None:
    """Forget a context. The system is left as it is."""
    with changed_contexts() as found:
        found.find(name)
        del found.contexts[name]
        was_current = found.current == name
        if was_current:
            found.current = ""
    click.echo(f"Context {name} is deleted" + (f"; commands use {DEFAULT_FOLDER} now." if was_current else "."))


def _current(found: Contexts) -> str:
    return os.environ.get(CONTEXT, "") or found.current


def _absolute(option: str, value: str) -> str:
    return str(Path(value).absolute()) if option.endswith(("-ca", "-nkey")) else value


def _place(each: SystemContext) -> str:
    return each.folder or each.env_file or _PASSWORD.sub(r"\1", each.servers["KOORD_POSTGRES"])


def _shown(found: Contexts, name: str) -> dict[str, object]:
    each = found.find(name)
    fields: dict[str, object] = {"name": name, "current": name == _current(found)}
    if each.folder:
        fields["dir"] = each.folder
    if each.env_file:
        fields["env_file"] = each.env_file
    options = {SERVERS[key].removeprefix("--").replace("-", "_"): value for key, value in each.servers.items()}
    return {**fields, **{key: _PASSWORD.sub(r"\1", value) for key, value in options.items()}}
