"""The `koord` command: its sub-commands by name, imported when one is used, and how errors and exits look.

Start-up matters: a shell asks this program at every press of Tab. Nothing but click is imported before a sub-command is.
"""

import importlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from shared.errors import KoordError


class Entry(NamedTuple):
    """Where a sub-command is, and its line in `koord --help` (a test compares it with the command's own)."""

    module: str
    attribute: str
    help: str


COMMANDS: Mapping[str, Entry] = {
    "audit": Entry("cli.commands.audit", "audit", "Prove that the log is what was written."),
    "bench": Entry("cli.bench.command", "bench", "Measure the log and the way of a pod through the system."),
    "completion": Entry("cli.commands.completion", "completion", "Print the script that completes koord in a shell."),
    "demo": Entry("cli.demo.command", "demo", "Place 1,000 pods on 100 simulated nodes and show what came of it."),
    "dev": Entry("cli.dev.command", "dev", "Tools for developing Koordstream."),
    "events": Entry("cli.commands.events", "events", "Show events of the log, oldest first."),
    "migrate": Entry("cli.commands.migrate", "migrate", "Bring the database to this release's schema."),
    "parity": Entry("cli.parity.command", "parity", "Compare our decisions with upstream's, case by case."),
    "run": Entry("cli.commands.run", "run", "Run one service until SIGTERM."),
    "up": Entry("cli.supervisor.command", "up", "Run the whole system on this machine until Ctrl-C."),
    "why": Entry("cli.commands.why", "why", "Explain a decision from the log alone."),
}

INTERRUPTED = 130


class Failed(click.ClickException):
    """What a KoordError becomes at the terminal: its text on stderr, exit code 1, no traceback."""

    def show(self, file: Any = None) -> None:  # noqa: ARG002  click's signature
        """Print the text on stderr."""
        click.echo(f"koord: {self.message}", err=True)


class Koord(click.Group):
    """A group that imports a sub-command when it is used; its help and its completion import none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All names, in order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the sub-command; None when there is none of this name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        try:
            command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] in {"cli", "shared", "services"}:
                raise
            raise Failed(f"`koord {cmd_name}` needs {error.name}; pip install 'koordstream[all]'") from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The table of sub-commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in sorted(COMMANDS.items())])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Sub-commands that begin with what was typed, then options."""
        found = [
            CompletionItem(name, help=entry.help)
            for name, entry in sorted(COMMANDS.items())
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the sub-command; an error with a text for people ends it with that text."""
        try:
            return super().invoke(ctx)
        except KoordError as error:
            raise Failed(str(error)) from error


@click.group(cls=Koord, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="koordstream", message="koord %(version)s")
def koord() -> None:
    """Koordstream: Koordinator's co-location control plane as an event-sourced system.

    `koord up` runs all of it here; `koord why pod NAMESPACE/NAME` says why a pod is where it is.

    \b
    Exit codes: 0 done; 1 it failed, or what it checked does not hold (the reason is on stderr);
                2 wrong usage; 130 interrupted.
    """


def main() -> None:
    """Entry point of the `koord` script."""
    try:
        sys.exit(koord.main(prog_name="koord", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
