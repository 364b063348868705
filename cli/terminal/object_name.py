"""The name of a namespaced object: `NAME -n NAMESPACE`, or `NAMESPACE/NAME`."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from cli.terminal import name_completion
from cli.terminal.kind_names import without_kind

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
    """Returns what adds the NAME of an object without a namespace; `KIND/NAME` is accepted too."""
    return click.argument(
        "name", metavar="NAME", shell_complete=complete, callback=lambda _context, _parameter, name: without_kind(name)
    )


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
