"""NodeResourcesBalancedAllocationArgs. Source: spec/scheduler-core.md 2.4; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from services.scheduler.plugins.helper.scoring_strategy_args import WeightedResource
from shared.errors import KoordError


class BadBalanceArgs(KoordError):
    """NodeResourcesBalancedAllocationArgs that cannot be used."""


class _Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resources: tuple[WeightedResource, ...] = ()


def read_balance_args(raw: Mapping[str, Any], source: str) -> tuple[str, ...]:
    """The resources to balance: cpu and memory when none are named.

    Raises:
        BadBalanceArgs: a field is unknown or of the wrong type, or a weight is not 1, the only one that upstream
            accepts.
    """
    resources = decode_args(raw, _Args, source, BadBalanceArgs).resources
    for number, resource in enumerate(resources):
        if resource.weight not in (0, 1):
            raise BadBalanceArgs(f"{source}: resources[{number}].weight is {resource.weight}; give 1 or leave it out")
    return tuple(resource.name for resource in resources) or ("cpu", "memory")
