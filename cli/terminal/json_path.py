"""`-o jsonpath=EXPRESSION`: RFC 9535, with kubectl's braces around a path left out.

Source: RFC 9535. `{.items[*].name}`, `.items[*].name` and `$.items[*].name` are the same path.
"""

from typing import Any

import click
from click.shell_completion import CompletionItem

JSONPATH = "jsonpath="


def found_at(expression: str, value: Any) -> list[Any]:
    """Returns the values that a path finds, in order."""
    found: list[Any] = _compiled(expression).findall(value)
    return found


class OutputType(click.ParamType[str]):
    """The choice of an output, or `jsonpath=EXPRESSION`."""

    name = "output"

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002  click's signature
        """The choices, for the help."""
        return f"[{'|'.join(self.choices)}|jsonpath=PATH]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Checks the choice, and the expression."""
        text = str(value)
        if text.startswith(JSONPATH):
            try:
                _compiled(text.removeprefix(JSONPATH))
            except ValueError as error:
                self.fail(str(error), param, ctx)
        elif text not in self.choices:
            self.fail(f"{text!r} is none of {', '.join(self.choices)}, jsonpath=PATH", param, ctx)
        return text

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """The choices that begin like this."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(each) for each in (*self.choices, JSONPATH) if each.startswith(incomplete)]


def _compiled(expression: str) -> Any:
    """Compiles a path.

    Raises:
        ValueError: it is none; names what is wrong.
        Failed: the library is not installed.
    """
    try:
        from jsonpath import JSONPathError
        from jsonpath import compile as compiled
    except ModuleNotFoundError as error:
        raise click.ClickException("`-o jsonpath` needs python-jsonpath; pip install 'koordstream[all]'") from error
    path = expression.strip()
    if path.startswith("{") and path.endswith("}") and path.count("{") == 1:
        path = path[1:-1].strip()
    if path.startswith("{") != path.endswith("}") and path.count("{") + path.count("}") == 1:
        there, missing = "{}" if path.startswith("{") else "}{"
        raise ValueError(f"{expression!r} has a {there!r} without a {missing!r}; add it, or leave both out")
    if path.startswith("{"):
        raise ValueError(f"{expression!r} is more than one path; pipe -o json into jq for templates such as range")
    if not path.startswith("$"):
        path = f"${path}" if path.startswith((".", "[")) else f"$.{path}"
    try:
        return compiled(path, strict=True)
    except JSONPathError as error:
        raise ValueError(f"{expression!r} is no JSONPath: {str(error).splitlines()[0]}") from error
