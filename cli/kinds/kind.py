"""A kind: how its objects are read from the log, and how a table shows them."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import click

from cli.supervisor.log_access import log_of
from cli.terminal.kind_names import without_kind
from cli.terminal.object_name import DEFAULT_NAMESPACE, unused_namespace
from cli.terminal.options import folder_option, outputs
from cli.terminal.output import Format, show, show_table
from shared.errors import KoordError


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        cell: item -> text.
        is_wide: only with `-o wide`.
    """

    title: str
    cell: Callable[[Any], object]
    is_wide: bool = False
    is_right: bool = False


class Kind(NamedTuple):
    """A kind of objects.

    Attributes:
        read: (URL of the database, **options) -> items, in order; each has a `namespace` where the kind is namespaced.
        options: of `read`, beside the common ones.
        name_of: item -> its name.
        draw: the table on a terminal, where it is more than its columns.
        listed_by: the command that lists them, where it is not `koord get PLURAL`.
        join: the items of one name -> the object that programs get, where a kind has several items a name.
        reads_name: `read` is given the `name` of the command line; None for all.
        watch: shows what it is given again and again until interrupted; adds `--watch`.
    """

    singular: str
    plural: str
    read: Callable[..., Coroutine[Any, Any, Sequence[Any]]]
    columns: tuple[Column, ...]
    is_namespaced: bool = False
    name_of: Callable[[Any], str] = attrgetter("name")
    options: tuple[Callable[[Any], Any], ...] = ()
    draw: Callable[[Sequence[Any]], object] | None = None
    join: Callable[[Sequence[Any]], object] | None = None
    watch: Callable[[Callable[[], Sequence[Any]], Format], None] | None = None
    complete: Callable[..., Any] | None = None
    listed_by: str = ""
    reads_name: bool = False


_NAMESPACE = Column("namespace", lambda item: item.namespace or "-")


class NoSuchObject(KoordError):
    """The log has no object of this name."""

    def __init__(self, kind: Kind, name: str, items: Sequence[Any]) -> None:
        from shared.closest_name import did_you_mean  # only here: it takes a tenth of the command's start

        own = [kind.name_of(item) for item in items]
        full = (
            [f"{item.namespace}/{each}" for item, each in zip(items, own, strict=True)] if kind.is_namespaced else own
        )
        everywhere = " -A" if kind.is_namespaced else ""
        listed_by = kind.listed_by or f"koord get {kind.plural}"
        what = kind.plural.removesuffix("s") if kind.listed_by else kind.singular
        super().__init__(
            f"there is no {what} {name!r}{did_you_mean(name, full)}; `{listed_by}{everywhere}` shows those there are"
        )


def get_command(kind: Kind, summary: str) -> click.Command:
    """Returns `koord get KIND`."""

    def command(
        *,
        name: str | None,
        output: Format,
        no_headers: bool,
        folder: Path,
        watch: bool = False,
        namespace: str | None = None,
        all_namespaces: bool = False,
        **options: Any,
    ) -> None:
        name = without_kind(name, namespace) if name is not None else None

        def chosen() -> Sequence[Any]:
            with log_of(folder) as postgres:
                items = asyncio.run(kind.read(postgres, **options, **({"name": name} if kind.reads_name else {})))
            return select(kind, items, name, namespace, is_everywhere=all_namespaces)

        if watch and kind.watch:
            kind.watch(chosen, output)
            return
        found = chosen()
        if not found and output in ("table", "wide"):
            click.echo(f"No {kind.plural} found{_where(kind, namespace, is_everywhere=all_namespaces)}.", err=True)
            return
        with_namespace = all_namespaces and kind.is_namespaced
        shown = kind._replace(columns=(_NAMESPACE, *kind.columns)) if with_namespace else kind
        _print(shown, found, output, is_one=name is not None, no_headers=no_headers)

    adds: list[Callable[[Any], Any]] = [
        click.argument("name", required=False, shell_complete=kind.complete),
        *(
            _namespaces()
            if kind.is_namespaced
            else (_everywhere("All of them: the kind is not listed by namespace."), unused_namespace)
        ),
        *kind.options,
        *([click.option("--watch", is_flag=True, help="Show it again every two seconds.")] if kind.watch else ()),
        outputs("table", "wide", "name", "json", "yaml"),
        click.option("--no-headers", is_flag=True, help="Leave out the line of titles."),
        folder_option,
    ]
    wrapped: Any = command
    for add in reversed(adds):
        wrapped = add(wrapped)
    return click.command(name=kind.plural, help=summary)(wrapped)


def select(
    kind: Kind, items: Sequence[Any], name: str | None, namespace: str | None, *, is_everywhere: bool
) -> list[Any]:
    """Returns the items of a name and a namespace.

    Raises:
        NoSuchObject: there is none of that name.
        UsageError: name and namespace contradict each other.
    """
    if not kind.is_namespaced:
        found = [item for item in items if name in (None, kind.name_of(item))]
        if name is not None and not found:
            raise NoSuchObject(kind, name, items)
        return found
    given, slash, short = (name or "").partition("/")
    if slash:
        if namespace and namespace != given:
            raise click.UsageError(f"{name} is in namespace {given}, and -n is {namespace}")
        namespace, name = given, short
    if is_everywhere:
        return [item for item in items if name in (None, kind.name_of(item))]
    namespace = namespace or DEFAULT_NAMESPACE
    found = [item for item in items if item.namespace == namespace and name in (None, kind.name_of(item))]
    if name is not None and not found:
        raise NoSuchObject(kind, f"{namespace}/{name}", items)
    return found


def _namespaces() -> tuple[Callable[[Any], Any], ...]:
    return (
        click.option("-n", "--namespace", help="Only this namespace.  [default: default]"),
        _everywhere("All namespaces."),
    )


def _everywhere(text: str) -> Callable[[Any], Any]:
    return click.option("-A", "--all-namespaces", is_flag=True, help=text)


def _where(kind: Kind, namespace: str | None, *, is_everywhere: bool) -> str:
    if not kind.is_namespaced or is_everywhere:
        return ""
    return f" in namespace {namespace or DEFAULT_NAMESPACE}; -A shows those of all"


def _print(kind: Kind, found: Sequence[Any], output: Format, *, is_one: bool, no_headers: bool) -> None:
    if output == "name":
        for name in dict.fromkeys(_full_name(kind, item) for item in found):
            click.echo(f"{kind.singular}/{name}")
    elif output in ("table", "wide"):
        if output == "table" and kind.draw and not no_headers and sys.stdout.isatty():
            kind.draw(found)
            return
        columns = [each for each in kind.columns if output == "wide" or not each.is_wide]
        rows = [[each.cell(item) for each in columns] for item in found]
        right = [each.title for each in columns if each.is_right]
        show_table([each.title for each in columns], rows, header=not no_headers, right=right)
    else:
        show(_one(kind, found) if is_one else {"items": list(found)}, output)


def _one(kind: Kind, found: Sequence[Any]) -> object:
    """Returns the object of a name, as kubectl prints it; a list where several namespaces have it."""
    if kind.join is not None:
        return kind.join(found)
    return found[0] if len(found) == 1 else {"items": list(found)}


def _full_name(kind: Kind, item: Any) -> str:
    name = kind.name_of(item)
    return f"{item.namespace}/{name}" if kind.is_namespaced and item.namespace else name
