"""The arguments of LowNodeUtilization and HighNodeUtilization, and their checks.

Source: spec/descheduler.md 1.8.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, field

from services.descheduler.load_aware.arguments import NamespacesDocument
from shared.domain.component_config import BadConfig, Strict, check_one_of, converted

Percents = Mapping[str, float]
Percent = Annotated[float, Meta(ge=0, le=100)]
ALL = 100.0
ONLY_THRESHOLDING_RESOURCES = "OnlyThresholdingResources"


class EvictionLimitsDocument(Strict):
    """Evictions of one cycle."""

    node: Annotated[int, Meta(ge=0)] | None = None


class _CommonDocument(Strict):
    thresholds: dict[str, Percent] = field(default_factory=dict)
    number_of_nodes: Annotated[int, Meta(ge=0)] = 0
    evictable_namespaces: NamespacesDocument | None = None


class _LowDocument(_CommonDocument):
    target_thresholds: dict[str, Percent] = field(default_factory=dict)
    use_deviation_thresholds: bool = False
    eviction_limits: EvictionLimitsDocument | None = None
    metrics_utilization: dict[str, Any] | None = None


class _HighDocument(_CommonDocument):
    eviction_modes: list[str] = field(default_factory=list)


class UtilizationArgs(NamedTuple):
    """The arguments of either plugin.

    Attributes:
        low: resource -> percent of what the node offers; a node with as much or less in all of them is low.
        high: with more than this in one of them it is high.
        deviation: both are distances from the mean of all nodes.
        number_of_nodes: nothing moves while no more nodes are low.
        packs: it is HighNodeUtilization, whose targets are all nodes that are not low and take pods.
        per_node: evictions of one cycle on one node; None: no limit.
        requesting_only: pods move alone that request one of these resources.
    """

    low: Percents
    high: Percents
    deviation: bool
    number_of_nodes: int
    excluded: frozenset[str]
    packs: bool = False
    per_node: int | None = None
    requesting_only: bool = False


def read_low_args(plain: Mapping[str, Any], path: str) -> UtilizationArgs:
    """Reads the arguments of LowNodeUtilization.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _LowDocument, path)
    if given.metrics_utilization is not None:
        raise BadConfig(
            f"{path}.metricsUtilization", "this plugin counts requests; use LowNodeLoad, which counts measured usage"
        )
    _check(given, path)
    if given.thresholds.keys() != given.target_thresholds.keys():
        names = ", ".join(sorted(given.thresholds.keys() ^ given.target_thresholds.keys()))
        raise BadConfig(
            f"{path}.targetThresholds", f"{names}: in one of thresholds and targetThresholds; give it in both"
        )
    for name, low in given.thresholds.items():
        high = given.target_thresholds[name]
        if low > high and not given.use_deviation_thresholds:
            raise BadConfig(f"{path}.thresholds.{name}", f"{low:g} is more than {high:g} in targetThresholds")
    return UtilizationArgs(
        low=given.thresholds,
        high=given.target_thresholds,
        deviation=given.use_deviation_thresholds,
        number_of_nodes=given.number_of_nodes,
        excluded=_excluded(given),
        per_node=given.eviction_limits.node if given.eviction_limits else None,
    )


def read_high_args(plain: Mapping[str, Any], path: str) -> UtilizationArgs:
    """Reads the arguments of HighNodeUtilization.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _HighDocument, path)
    _check(given, path)
    for number, mode in enumerate(given.eviction_modes):
        check_one_of(mode, (ONLY_THRESHOLDING_RESOURCES,), f"{path}.evictionModes[{number}]")
    return UtilizationArgs(
        low=given.thresholds,
        high=dict.fromkeys(given.thresholds, ALL),
        deviation=False,
        number_of_nodes=given.number_of_nodes,
        excluded=_excluded(given),
        packs=True,
        requesting_only=bool(given.eviction_modes),
    )


def _check(given: _CommonDocument, path: str) -> None:
    if not given.thresholds:
        raise BadConfig(f"{path}.thresholds", "empty; give a percentage of at least one resource, such as cpu: 20")
    if given.evictable_namespaces and given.evictable_namespaces.include:
        raise BadConfig(f"{path}.evictableNamespaces.include", "only exclude can be given")


def _excluded(given: _CommonDocument) -> frozenset[str]:
    return frozenset((given.evictable_namespaces or NamespacesDocument()).exclude or ())
