"""`koord why KIND NAME`: the reason why something is as it is."""

import click

from cli.terminal.lazy_group import Entry
from cli.terminal.verb import Verb

KINDS = {
    "pod": Entry("cli.commands.why_pod", "pod", "Explain where a pod is placed, or why it waits."),
}


@click.group(cls=Verb, entries=KINDS)
def why() -> None:
    """Explain a decision from the log alone."""
