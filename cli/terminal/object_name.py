"""The name of a namespaced object: `NAME -n NAMESPACE`, or `NAMESPACE/NAME`."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from cli.terminal import name_completion
from cli.terminal.kind_names import kind_of, without_kind
from cli.terminal.output import show_text

DEFAULT_NAMESPACE = "default"

namespace_option = click.option("-n", "--namespace", default=None, help="The namespace.  [default: default]")


def namespaced_name(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds NAME and `-n`; the command gets `namespace/name` as `name`. `KIND/NAME` is accepted, as kubectl does."""

    @wraps(command)
    def qualified(*, name: str, namespace: str | None, **options: Any) -> Any:
        return command(name=full_name(without_kind(name, namespace), namespace), **options)

    argument = click.argument("name", metavar="NAME", shell_complete=name_completion.pods)
    return argument(namespace_option(qualified))


def cluster_name(complete: Callable[..., Any] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns what adds the NAME of an object without a namespace; `KIND/NAME` and a `-n` are accepted too."""
    argument = click.argument("name", metavar="NAME", shell_complete=complete, callback=_cluster_name)
    return lambda command: argument(unused_namespace(command))


def _cluster_name(context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Returns the name alone; that of a quota may have the namespace of its object before it."""
    namespace, slash, short = (name := without_kind(name)).partition("/")
    if slash and kind_of(context) == "quota":
        _note_unused_namespace(context, _parameter, namespace)
        return short
    return name


def unused_namespace(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the option `-n` to a command whose objects belong to no namespace.

    The option has no effect, as in kubectl; a note on stderr reports that.
    """
    option = click.option("-n", "--namespace", hidden=True, expose_value=False, callback=_note_unused_namespace)
    return option(command)


def _note_unused_namespace(context: click.Context, _parameter: click.Parameter, namespace: str | None) -> None:
    if namespace is not None:
        kind = kind_of(context)
        why = "quota names count in all namespaces" if kind == "quota" else f"a {kind} has no namespace"
        show_text(f"koord: {why}; {namespace!r} has no effect", err=True)


def full_name(name: str, namespace: str | None) -> str:
    """Returns `namespace/name`.

    Raises:
        UsageError: name and option give two namespaces.
    """
    given, slash, _ = name.partition("/")
    if not slash:
        return f"{namespace or DEFAULT_NAMESPACE}/{name}"
    if namespace and namespace != given:
        raise click.UsageError(f"{name} is in namespace {given}, and -n is {namespace}")
    return name
