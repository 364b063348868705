"""The `koord` command: its sub-commands by name, and how errors and exits look.

Start-up matters: a shell runs this program at every press of Tab. Nothing but click is imported before a sub-command
is.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from cli.terminal.lazy_group import Entry, Failed, LazyGroup
from shared.errors import KoordError

COMMANDS: Mapping[str, Entry] = {
    "audit": Entry("cli.commands.audit", "audit", "Prove that the log is what was written."),
    "bench": Entry("cli.bench.command", "bench", "Measure the log and the path of a pod through the system."),
    "cluster": Entry("cli.commands.cluster", "cluster", "Show and confirm lists that the gateway does not believe."),
    "completion": Entry("cli.commands.completion", "completion", "Print the script that completes koord in a shell."),
    "config": Entry("cli.config.command", "config", "Check configuration files before they are applied."),
    "context": Entry("cli.system_contexts.command", "context", "Name systems, and choose the one that commands mean."),
    "credentials": Entry(
        "cli.credentials.command",
        "credentials",
        "Make and check the logins of services, nodes, operator and auditor.",
    ),
    "defrag": Entry(
        "cli.scheduling.defrag", "defrag", "Show which few moves of running pods would admit a waiting pod or gang."
    ),
    "demo": Entry("cli.demo.command", "demo", "Place 1,000 pods on 100 simulated nodes and show what came of it."),
    "describe": Entry("cli.verbs.describe", "describe", "Show one object in full: facts, state and last events."),
    "dev": Entry(
        "cli.dev.command",
        "dev",
        "Tools for developing Koordstream, and for trying it: a cluster of its own, and objects of the simulated one.",
    ),
    "devices": Entry(
        "cli.devices.command",
        "devices",
        "Show the devices of nodes: the share that each pod has, and what is stranded.",
    ),
    "doctor": Entry("cli.doctor.command", "doctor", "Say what is wrong with an installation, and what to do about it."),
    "drain": Entry("cli.commands.drain", "drain", "Drain NODE: cordon it, and move its pods one after the other."),
    "events": Entry("cli.commands.events", "events", "Show events of the log, oldest first."),
    "evictions": Entry("cli.commands.evictions", "evictions", "Show, hold and release the evictions of all services."),
    "explain": Entry(
        "cli.verbs.explain",
        "explain",
        "Show the arithmetic behind a quota's runtime, a node's resources, a pod's charge.",
    ),
    "followers": Entry(
        "cli.commands.followers", "followers", "Show who follows the logs, and forget who no longer does."
    ),
    "get": Entry("cli.verbs.get", "get", "List objects and what is known of each, from the log alone."),
    "log": Entry("cli.commands.log_export", "log", "Write logs into files."),
    "migrate": Entry("cli.commands.migrate", "migrate", "Bring the database to this release's schema."),
    "node": Entry("cli.node.hooks_of_node", "node", "Show what the agent of a node did to its containers."),
    "parity": Entry("cli.parity.command", "parity", "Compare our decisions with upstream's, case by case."),
    "pending": Entry(
        "cli.kinds.waiting_pods",
        "pending",
        "Show which pods wait for a node, for what and since when, in the order of the queue.",
    ),
    "replay": Entry("cli.replay.command", "replay_command", "Repeat recorded decisions and compare them bit for bit."),
    "run": Entry("cli.commands.run", "run", "Run one service until SIGTERM."),
    "shadow": Entry("cli.commands.shadow", "shadow", "Report the comparison with another scheduler's placements."),
    "simulate": Entry("cli.simulate.command", "simulate", "Place a list of pods on a list of nodes, in memory."),
    "top": Entry("cli.top.command", "top", "Show how the services, the logs and the bus do, until Ctrl-C."),
    "uninstall": Entry(
        "cli.commands.uninstall",
        "uninstall",
        "Remove the objects and fields that this system wrote into a cluster; without --yes only show them.",
    ),
    "up": Entry("cli.supervisor.command", "up", "Run the whole system on this machine until Ctrl-C."),
    "verify": Entry(
        "cli.verbs.verify",
        "verify",
        "Check that the recorded amounts add up. `koord audit verify` checks that the log was not altered.",
    ),
    "whatif": Entry("cli.verbs.whatif", "whatif", "Show the effect of a change without making it."),
    "why": Entry("cli.verbs.why", "why", "Explain a decision from the log alone."),
}

INTERRUPTED = 130


def foreign_owner(file: str) -> str:
    """Returns whose a file is, or the nearest folder above it that can be seen; empty where it is this user's own."""
    from pathlib import Path  # only here: the help imports no more than it needs

    for each in (Path(file).absolute(), *Path(file).absolute().parents):
        try:
            found = each.stat().st_uid
            return "" if found == os.geteuid() else f"{each} belongs to {each.owner()}"
        except OSError:
            continue
        except KeyError:
            return f"{each} belongs to the user id {found}"
    return ""


class Koord(LazyGroup):
    """The root: an error with a text for people ends any command with that text."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the sub-command."""
        try:
            return super().invoke(ctx)
        except KoordError as error:
            raise Failed(str(error)) from error
        except OSError as error:
            if error.filename is None or isinstance(error, BrokenPipeError):
                raise
            file = os.fsdecode(error.filename)
            remedy = "name another path, or correct its rights"
            if isinstance(error, PermissionError) and (owner := foreign_owner(file)):
                remedy = f"{owner}: run the command as that user, or name another path"
            raise Failed(f"{file} cannot be used ({error.strerror}); {remedy}") from error


@click.group(cls=Koord, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="koordstream", message="koord %(version)s")
def koord() -> None:
    """Koordstream: Koordinator's co-location control plane as an event-sourced system.

    `koord up` runs all of it here; `koord why pod NAMESPACE/NAME` explains why a pod is where it is.

    \b
    Exit codes: 0 done; 1 it failed, or what it checked does not hold (the
                reason is on stderr); 2 wrong usage; 130 interrupted.
    """


def show_error(error: click.ClickException) -> None:
    """Prints an error on stderr, those of click's own with lines that fit the terminal too."""
    if isinstance(error, Failed):
        error.show()
        return
    from io import StringIO  # only here, and the next: the help imports no more than it needs

    from cli.terminal.output import show_text

    text = StringIO()
    error.show(text)
    show_text(text.getvalue().rstrip("\n"), err=True)


def main() -> None:
    """Runs `koord`, and ends the process with its exit code."""
    try:
        sys.exit(koord.main(prog_name="koord", standalone_mode=False))
    except click.ClickException as error:
        show_error(error)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
