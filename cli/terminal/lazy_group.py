"""A group of commands that imports one when it is used; its help and its completion import none."""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from shared.runtime.garbage_collection import uncollected

OURS = frozenset({"cli", "services", "shared"})


class Entry(NamedTuple):
    """Where a sub-command is, and its line in the group's help (a test compares it with the command's own)."""

    module: str
    attribute: str
    help: str


class Failed(click.ClickException):
    """An error with a text for people: that text on stderr, exit code 1, no traceback."""

    def show(self, file: Any = None) -> None:  # noqa: ARG002  click's signature
        """Prints the text on stderr."""
        from cli.terminal.output import show_text  # only here: a command that works may not need it

        show_text(f"koord: {self.message}".rstrip("\n"), err=True)


def no_command(group: click.Group, ctx: click.Context, name: str) -> NoReturn:
    """Ends with the sub-command that was probably meant.

    Raises:
        UsageError: always.
    """
    from shared.closest_name import did_you_mean  # only here: it takes a tenth of the command's start

    ctx.fail(f"there is no command {name!r} of `{ctx.command_path}`{did_you_mean(name, group.list_commands(ctx))}")


class Group(click.Group):
    """A group whose help has the whole first line of each sub-command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the sub-command."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            no_command(self, ctx, args[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of sub-commands."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, (each.help or "").partition("\n")[0]) for name, each in commands if each and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(click.Group):
    """A group whose sub-commands are entries."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = dict(sorted(entries.items()))

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All names, in order."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Imports the sub-command; None when there is none of this name. Raises as `load` does."""
        entry = self.entries.get(cmd_name)
        return None if entry is None else self.load(cmd_name, entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the sub-command."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            no_command(self, ctx, args[0])
        return super().resolve_command(ctx, args)

    def load(self, cmd_name: str, entry: Entry) -> click.Command:
        """Imports a sub-command.

        Raises:
            Failed: it needs a library that is not installed.
        """
        try:
            with uncollected():
                command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] in OURS:
                raise
            raise Failed(f"`{cmd_name}` needs {error.name}; pip install 'koordstream[all]'") from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The table of sub-commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Sub-commands that begin with what was typed, then options."""
        fitting = [(name, entry) for name, entry in self.entries.items() if name.startswith(incomplete)]
        found = [CompletionItem(name, help=entry.help) for name, entry in fitting]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]
