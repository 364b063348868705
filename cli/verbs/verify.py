"""`koord verify KIND`: whether what was recorded adds up."""

import click

from cli.terminal.lazy_group import Entry
from cli.terminal.verb import Verb

KINDS = {
    "quotas": Entry("cli.quota.command", "verify", "Add up the whole ledger of quotas, event by event."),
}


@click.group(cls=Verb, entries=KINDS)
def verify() -> None:
    """Check that the recorded amounts add up. `koord audit verify` checks that the log was not altered."""
