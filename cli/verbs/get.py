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
    "evictions": Entry(
        "cli.kinds.evictions",
        "get",
        "List the descheduler's eviction cases: what is wrong, how many pods leave, and what came of it.",
    ),
    "gangs": Entry(
        "cli.kinds.gangs", "get", "List gangs: the pods of each, bound, placed and pending, against its minimum."
    ),
    "nodes": Entry(
        "cli.kinds.nodes", "get", "List nodes: status, pods, and the requests of these against what is allocatable."
    ),
    "pods": Entry(
        "cli.kinds.pods",
        "get",
        "List pods: where each is, its quota, gang and requests. `koord pending` has those that wait.",
    ),
    "quotas": Entry(
        "cli.kinds.quotas", "get", "Show each quota in each resource: min, max, runtime, used, borrowed, lent, waiting."
    ),
    "reservations": Entry(
        "cli.kinds.reservations",
        "get",
        "List Reservations: where each is, what it holds, who uses it, and when it expires.",
    ),
}


@click.group(cls=Verb, entries=KINDS)
def get() -> None:
    """List objects and what is known of each, from the log alone."""
