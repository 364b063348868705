"""InterPodAffinityArgs. Source: spec/scheduler-core.md 2.5; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.errors import KoordError


class BadInterPodArgs(KoordError):
    """InterPodAffinityArgs that cannot be used; gives the path, the value and what is allowed."""


class InterPodArgs(NamedTuple):
    """InterPodAffinityArgs.

    Attributes:
        hard_weight: added to the score for each required affinity of a running pod that matches, 0..100.
        ignores_existing: pods without preferred terms of their own are not scored.
    """

    hard_weight: int = 1
    ignores_existing: bool = False


class _Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


def read_inter_pod_args(raw: Mapping[str, Any], source: str = "InterPodAffinityArgs") -> InterPodArgs:
    """Decodes and checks InterPodAffinityArgs.

    Raises:
        BadInterPodArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, _Args, source, BadInterPodArgs)
    if not 0 <= args.hard_pod_affinity_weight <= 100:
        found = args.hard_pod_affinity_weight
        raise BadInterPodArgs(f"{source}: hardPodAffinityWeight is {found}; give a whole number from 0 to 100")
    return InterPodArgs(args.hard_pod_affinity_weight, args.ignore_preferred_terms_of_existing_pods)
