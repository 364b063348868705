"""The `merge` cases of `numa`: the topology manager alone, called as a pod's cycle calls it.

Decisions record the outcome alone.
"""

from collections.abc import Mapping
from typing import Any

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.node_numa_resource.hint_combinations import Hint
from services.scheduler.plugins.node_numa_resource.node_usage import ZoneUse
from services.scheduler.plugins.node_numa_resource.topology_manager import mask_of, merge, numas_of
from services.scheduler.plugins.registry import text


def merged(given: Mapping[str, Any]) -> dict[str, Any]:
    """Answers one case in the shape of its output."""
    status = dict(enumerate(map(ZoneUse, given["numaStatus"])))
    providers = [
        {name: None if hints is None else [_hint(hint) for hint in hints] for name, hints in (provider or {}).items()}
        for provider in given["providers"]
    ]
    outcome = merge(
        given["policy"], given["numaNodes"], providers, given["exclusive"], lambda n: status.get(n, ZoneUse.IDLE)
    )
    reasons = [Reason("UnsatisfiedNuma", name) for name in outcome.unsatisfied]
    if outcome.unaligned or not (outcome.admitted or reasons):
        reasons.append(Reason("UnalignedNuma", outcome.unaligned))
    return {
        "best": affinity(outcome.best),
        "admit": outcome.admitted,
        "reasons": sorted(text(*reason) for reason in reasons),
    }


def _hint(plain: Mapping[str, Any]) -> Hint:
    mask = plain.get("mask")
    return Hint(
        None if mask is None else mask_of(mask),
        plain["preferred"],
        plain.get("score", 0),
        plain.get("unsatisfied", False),
    )


def affinity(hint: Hint) -> dict[str, Any]:
    """Returns a hint in the recorded shape."""
    return {
        "mask": None if hint.mask is None else numas_of(hint.mask),
        "preferred": hint.preferred,
        "score": hint.score,
        "unsatisfied": hint.unsatisfied,
    }
