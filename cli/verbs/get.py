"""`koord get KIND [NAME]`: what the log has at present; no service needs to run."""

import click

from cli.terminal.lazy_group import Entry
from cli.terminal.verb import Verb

KINDS = {
    "configs": Entry(
        "cli.kinds.configs",
        "get",
        "Show the configuration in force of each context, and the rejected one with its reason.",
    ),
    "quotas": Entry(
        "cli.kinds.quotas", "get", "Show each quota in each resource: min, max, runtime, used, borrowed, lent, waiting."
    ),
}


@click.group(cls=Verb, entries=KINDS)
def get() -> None:
    """List objects and what is known of each, from the log alone."""
