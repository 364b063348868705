"""`koord why KIND NAME`: the reason why something is as it is."""

import click

from cli.terminal.lazy_group import Entry
from cli.terminal.verb import Verb

KINDS = {
    "device": Entry(
        "cli.devices.why_device",
        "device",
        "Explain the state of a device: what changed and when, and which pods had it.",
    ),
    "eviction": Entry(
        "cli.scheduling.why_eviction",
        "eviction",
        "Explain who requested the eviction of a pod, why, and what became of it.",
    ),
    "gang": Entry(
        "cli.scheduling.why_gang",
        "gang",
        "Explain what a gang waits for: its missing pods, or the member that no node admits.",
    ),
    "node": Entry(
        "cli.node.why_node",
        "node",
        "Explain why a node takes no or few pods, and why its batch resources are what they are.",
    ),
    "pod": Entry("cli.commands.why_pod", "pod", "Explain where a pod is placed, or why it waits."),
    "quota": Entry(
        "cli.quota.command", "explain", "Explain a quota's runtime, its pods, and what of its objects is not followed."
    ),
    "reservation": Entry(
        "cli.scheduling.why_reservation",
        "reservation",
        "Explain where a Reservation is and who uses it, or what keeps it from every node.",
    ),
    "slowdown": Entry(
        "cli.node.why_slowdown",
        "slowdown",
        "Show what the log has about why a pod may have been slowed or suppressed.",
    ),
}

GUESS = Entry(
    "cli.scheduling.why_unnamed_kind", "why_any", "Explain the pod, gang, Reservation or device of this name."
)


@click.group(cls=Verb, entries=KINDS, guess=GUESS)
def why() -> None:
    """Explain a decision from the log alone.

    `koord why NAME` finds the kind: a pod, a gang, a Reservation, or a device by NODE/TYPE/MINOR.
    """
