"""NodeResourcesFitArgs. Source: spec/scheduler-core.md 2.2, 2.3; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from services.scheduler.plugins.helper.scoring_strategy_args import LEAST, MOST, RATIO, WeightedResource
from shared.errors import KoordError


class BadFitArgs(KoordError):
    """Arguments that cannot be used; gives the path, the value and what is allowed."""


class ShapePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A point of the ratio's function: percent utilised, 0..100, and the score there, 0..10."""

    utilization: int
    score: int


class Ratio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of RequestedToCapacityRatio: points with ascending utilisation."""

    shape: tuple[ShapePoint, ...] = ()


class Strategy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The scoring strategy and its resources; cpu and memory when none are named."""

    type: str = LEAST
    resources: tuple[WeightedResource, ...] = ()
    requested_to_capacity_ratio: Ratio | None = None


class FitArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The plugin's arguments by their upstream JSON names.

    Attributes:
        ignored_resources: extended resources that the filter does not check.
        ignored_resource_groups: the same by the part before the slash.
    """

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: Strategy = Strategy()


def read_fit_args(raw: Mapping[str, Any], source: str = "NodeResourcesFitArgs") -> FitArgs:
    """Decodes, defaults and checks the arguments in a scheduler configuration.

    Raises:
        BadFitArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, FitArgs, source, BadFitArgs)
    strategy = args.scoring_strategy
    if strategy.type not in (LEAST, MOST, RATIO):
        raise BadFitArgs(f"{source}: scoringStrategy.type is {strategy.type!r}; give {LEAST}, {MOST} or {RATIO}")
    resources = strategy.resources or (WeightedResource("cpu"), WeightedResource("memory"))
    resources = tuple(WeightedResource(resource.name, resource.weight or 1) for resource in resources)
    for number, resource in enumerate(resources):
        if not 1 <= resource.weight <= 100:
            raise BadFitArgs(
                f"{source}: scoringStrategy.resources[{number}].weight is {resource.weight}; give a whole number from 1 to 100"
            )
    if strategy.type == RATIO:
        _check_shape(strategy.requested_to_capacity_ratio, source)
    return msgspec.structs.replace(args, scoring_strategy=msgspec.structs.replace(strategy, resources=resources))


def _check_shape(ratio: Ratio | None, source: str) -> None:
    path = "scoringStrategy.requestedToCapacityRatio.shape"
    shape = ratio.shape if ratio else ()
    if not shape:
        raise BadFitArgs(f"{source}: {path} is empty; give at least one point")
    for number, point in enumerate(shape):
        if not 0 <= point.utilization <= 100 or not 0 <= point.score <= 10:
            raise BadFitArgs(
                f"{source}: {path}[{number}] is {point}; utilization goes from 0 to 100, score from 0 to 10"
            )
        if number and point.utilization <= shape[number - 1].utilization:
            raise BadFitArgs(f"{source}: {path}[{number}].utilization is {point.utilization}; give ascending values")
