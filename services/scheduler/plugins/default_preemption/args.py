"""DefaultPreemptionArgs. Source: spec/scheduler-core.md 2.7; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.errors import KoordError

NAME = "DefaultPreemption"


class BadPreemptionArgs(KoordError):
    """DefaultPreemptionArgs that cannot be used; gives the path, the value and what is allowed."""


class PreemptionArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Bounds of the search for candidate nodes: a share of the nodes, but never fewer than a number."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def candidates(self, nodes: int) -> int:
        """The number of candidates that is enough, of so many nodes."""
        share = nodes * self.min_candidate_nodes_percentage // 100
        return min(max(share, self.min_candidate_nodes_absolute), nodes)


def read_preemption_args(raw: Mapping[str, Any], source: str = "DefaultPreemptionArgs") -> PreemptionArgs:
    """Decodes and checks DefaultPreemptionArgs.

    Raises:
        BadPreemptionArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, PreemptionArgs, source, BadPreemptionArgs)
    percent, least = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    if not 0 <= percent <= 100:
        raise BadPreemptionArgs(f"{source}: minCandidateNodesPercentage is {percent}; give a percentage from 0 to 100")
    if least < 0:
        raise BadPreemptionArgs(f"{source}: minCandidateNodesAbsolute is {least}; give 0 or more")
    if not percent and not least:
        raise BadPreemptionArgs(f"{source}: both candidate numbers are 0; give one of them above 0")
    return args
