"""Gangs: the order of the queue, and scenarios of members that are placed, given up and bound together."""

from collections.abc import Mapping
from typing import Any

from cli.parity.case_domain import Domain
from cli.parity.runners.scheduler.gang import scenario
from cli.parity.runners.scheduler.queue_order import queue_order
from cli.parity.upstream.gang_quirks import Quirk, Quirks
from cli.parity.upstream.quirk_rules import rules_of


def predicted(op: str, given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Returns the scheduler's answer with quirks of upstream."""
    if op == "queueOrder":
        return queue_order(given, by_sub_priority=Quirk.NO_SUB_PRIORITY not in quirks)
    return scenario(given, quirks)


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs one case."""
    return predicted(op, given, frozenset())


_STEPS_OF_UPSTREAM = frozenset(
    {
        "activated",
        "activatedAnyOf",
        "anyOf",
        "bindingMembers",
        "context",
        "error",
        "groupInfoShared",
        "message",
        "patchedConditions",
        "representative",
        "waitingGangIds",
    }
)
"""Upstream's own bookkeeping while it tries the members of a gang one after the other, and its texts for each of them."""

DOMAIN = Domain(answer, rules_of(predicted, Quirk), remarks=_STEPS_OF_UPSTREAM, argued_share=0.45)
