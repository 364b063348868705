"""`koord explain KIND NAME`: the arithmetic behind a number."""

import click

from cli.terminal.lazy_group import Entry
from cli.terminal.verb import Verb

KINDS = {
    "node": Entry("cli.node.command", "explain", "Add up the terms of a node's batch and mid resources."),
    "pod": Entry("cli.quota.command", "explain_standing", "Show the quota that a pod is short of, and its users."),
    "quota": Entry("cli.quota.command", "explain", "Write out the computation of a quota's runtime, and its pods."),
}


@click.group(cls=Verb, entries=KINDS)
def explain() -> None:
    """Show the arithmetic behind a quota's runtime, a node's resources, a pod's charge."""
