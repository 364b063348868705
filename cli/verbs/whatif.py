"""`koord whatif KIND`: the effect of a change that nobody has made."""

import click

from cli.terminal.lazy_group import Entry
from cli.terminal.verb import Verb

KINDS = {
    "quota": Entry("cli.quota.command", "what_if", "Show whose runtime another min, max or weight would change."),
}


@click.group(cls=Verb, entries=KINDS)
def whatif() -> None:
    """Show the effect of a change without making it."""
