"""NodeNUMAResourceArgs. Source: spec/scheduler-core.md 4.1; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from services.scheduler.plugins.node_numa_resource import policy_names
from services.scheduler.plugins.node_numa_resource.scoring_strategy import Strategies
from shared.errors import KoordError

_BIND = ("", policy_names.FULL_CORES, policy_names.SPREAD)
_TYPES = (policy_names.LEAST, policy_names.MOST)


class BadNumaArgs(KoordError):
    """Arguments that cannot be used; gives the path, the value and what is allowed."""


class Weighted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A resource and the weight of its part in the score, 1..100."""

    name: str
    weight: int = 1


class Strategy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scoring strategy and its resources; cpu and memory when none are named."""

    type: str = policy_names.LEAST
    resources: tuple[Weighted, ...] = (Weighted("cpu"), Weighted("memory"))


class NumaArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plugin's arguments by their upstream JSON names.

    Attributes:
        bind: bind policy of pods that name none; FullPCPUs by default.
        scoring: scores nodes.
        numa_scoring: its type scores NUMA nodes and orders their allocation. As upstream has it, its resources are
            checked and not used.
    """

    bind: str = msgspec.field(default=policy_names.FULL_CORES, name="defaultCPUBindPolicy")
    scoring: Strategy = msgspec.field(default=Strategy(), name="scoringStrategy")
    numa_scoring: Strategy = msgspec.field(default=Strategy(), name="numaScoringStrategy")

    @property
    def strategies(self) -> Strategies:
        """The scoring strategies as plain data."""
        weights = tuple((resource.name, resource.weight) for resource in self.scoring.resources)
        return Strategies(weights, self.scoring.type, self.numa_scoring.type)


def read_numa_args(raw: Mapping[str, Any], source: str = "NodeNUMAResourceArgs") -> NumaArgs:
    """Decodes and checks the arguments in a scheduler configuration.

    Raises:
        BadNumaArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, NumaArgs, source, BadNumaArgs)
    if args.bind not in _BIND:
        raise BadNumaArgs(
            f"{source}: defaultCPUBindPolicy is {args.bind!r}; give {policy_names.FULL_CORES}, {policy_names.SPREAD} or nothing"
        )
    for name, strategy in (("scoringStrategy", args.scoring), ("numaScoringStrategy", args.numa_scoring)):
        if strategy.type not in _TYPES:
            raise BadNumaArgs(f"{source}: {name}.type is {strategy.type!r}; give {' or '.join(_TYPES)}")
        for number, resource in enumerate(strategy.resources):
            if not 1 <= resource.weight <= 100:
                path = f"{name}.resources[{number}].weight"
                raise BadNumaArgs(f"{source}: {path} is {resource.weight}; give a whole number from 1 to 100")
    return args
