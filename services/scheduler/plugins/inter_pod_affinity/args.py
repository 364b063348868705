"""InterPodAffinityArgs. Source: spec/scheduler-core.md 2.5; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from shared.errors import KoordError


class BadInterPodArgs(KoordError):
    """InterPodAffinityArgs that cannot be used; names the path, what was found there and what is allowed."""


class InterPodArgs(NamedTuple):
    """InterPodAffinityArgs.

    Attributes:
        hard_weight: what a running pod's required affinity adds to the score, 0..100.
        ignores_existing: pods without preferred terms of their own are not scored.
    """

    hard_weight: int = 1
    ignores_existing: bool = False


class _Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


def read_inter_pod_args(raw: Mapping[str, Any], source: str = "InterPodAffinityArgs") -> InterPodArgs:
    """Decode and check InterPodAffinityArgs.

    Raises:
        BadInterPodArgs: a field is unknown, of the wrong type, or out of range.
    """
    stated = {name: value for name, value in raw.items() if name not in ("apiVersion", "kind") and value is not None}
    try:
        args = msgspec.convert(stated, _Args)
    except msgspec.ValidationError as error:
        raise BadInterPodArgs(f"{source}: {error}") from error
    if not 0 <= args.hard_pod_affinity_weight <= 100:
        found = args.hard_pod_affinity_weight
        raise BadInterPodArgs(f"{source}: hardPodAffinityWeight is {found}; give a whole number from 0 to 100")
    return InterPodArgs(args.hard_pod_affinity_weight, args.ignore_preferred_terms_of_existing_pods)
