"""A verb: `koord VERB KIND NAME`, as kubectl has it. A kind is one entry of the verb."""

from typing import Any

import click

from cli.terminal.kind_names import NAMES, SINGULAR
from cli.terminal.lazy_group import Entry, LazyGroup

_OTHER_COMMANDS = {
    "device": "`koord devices` shows those of all nodes, `koord why device` one",
    "eviction": "`koord why eviction` explains one",
    "gang": "`koord why gang` explains one",
    "reservation": "`koord why reservation` explains one",
    "slowdown": "`koord why slowdown` explains one",
}
"""Kind -> the commands that it has instead of a verb that does not take it."""


def _is_name(rest: list[str]) -> bool:
    """Returns whether another name follows, so that the first word was meant as a kind."""
    return bool(rest) and not rest[0].startswith("-")


class Verb(LazyGroup):
    """A group whose sub-commands are kinds; a kind goes by any of its names, and `KIND/NAME` stands for `KIND NAME`."""

    def __init__(self, *args: Any, guess: Entry | None = None, **kwargs: Any) -> None:
        """Makes the group.

        Args:
            guess: the command that takes a name without a kind.
        """
        super().__init__(*args, **kwargs)
        self._guess = guess
        self._kinds = {kind: kind for kind in self.entries}
        for names in NAMES:
            for kind in self.entries.keys() & set(names):
                self._kinds |= dict.fromkeys(names, kind)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the options before the kind; options are those of the kind's command, so there are none.

        Raises:
            UsageError: there is one, or there is no name at all.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            how = f"koord {ctx.info_name} {'[KIND] NAME' if self._guess is not None else 'KIND [NAME]'} [OPTIONS]"
            ctx.fail(f"{error.option_name} is an option of a kind's command, and follows it: `{how}`")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the kind's command; without a kind, the one that finds the kind."""
        first, slash, _ = args[0].partition("/")
        if args[0] in self._kinds:
            args = [self._kinds[args[0]], *args[1:]]
        elif slash and first in self._kinds:
            args = [self._kinds[first], *args]  # the kind's command takes its own `KIND/NAME`
        elif self._guess is not None and not first.startswith("-") and not _is_name(args[1:]):
            return args[0], self.load(args[0], self._guess), args
        else:
            from shared.closest_name import did_you_mean  # only here: it takes a tenth of the command's start

            others = _OTHER_COMMANDS.get(SINGULAR.get(first, ""), "")
            meant = f"; {others}" if others else did_you_mean(first, self.entries)
            there = ", ".join(self.entries)
            ctx.fail(f"there is no kind {first!r} to `koord {ctx.info_name}`{meant}; there are {there}")
        return super().resolve_command(ctx, args)
