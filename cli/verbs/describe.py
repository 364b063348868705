"""`koord describe KIND NAME`: facts, state and last events of one object."""

import click

from cli.terminal.lazy_group import Entry
from cli.terminal.verb import Verb

KINDS = {
    "config": Entry(
        "cli.describe.config",
        "command",
        "Show the configuration of a context: what is in force since when, what was rejected and why, and its text.",
    ),
    "gang": Entry(
        "cli.describe.gang",
        "command",
        "Show a gang: its settings, what it waits for, its members, and its last events.",
    ),
    "node": Entry(
        "cli.describe.node",
        "command",
        "Show a node: capacity, requests, measured usage, its pods, and its last events.",
    ),
    "pod": Entry(
        "cli.describe.pod",
        "command",
        "Show a pod: requests, quota, gang, where it is or what it waits for, and its last events.",
    ),
    "quota": Entry(
        "cli.describe.quota",
        "command",
        "Show a quota: min, max, runtime and use in each resource, its pods, and its last events.",
    ),
    "reservation": Entry(
        "cli.describe.reservation",
        "command",
        "Show a Reservation: what it holds, who uses it or what it waits for, and its last events.",
    ),
}


@click.group(cls=Verb, entries=KINDS)
def describe() -> None:
    """Show one object in full: facts, state and last events."""
