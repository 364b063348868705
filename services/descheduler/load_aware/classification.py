"""Classes of the nodes of a pool by their measured usage.

Source: spec/descheduler.md 2.3, 2.4.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.descheduler.load_aware.arguments import PoolArgs
from services.descheduler.load_aware.measured_node import Amounts, MeasuredNode
from services.descheduler.load_aware.thresholds import Ints, Percents, Thresholds, completed, thresholds

PODS = "pods"


class NodeClass(StrEnum):
    """The class of a node; only the first that holds, in this order but for APPROPRIATE, which is the rest."""

    PROD_HIGH = "ProdHigh"
    BOTH_LOW = "BothLow"
    LOW = "Low"
    HIGH = "High"
    PROD_LOW = "ProdLow"
    APPROPRIATE = "Appropriate"


class ClassifiedPool(NamedTuple):
    """The nodes of a pool that have a usable report, classified.

    Attributes:
        percents: thresholds in percent, completed.
        nodes: in their order. classes: of each.
        usage, prod_usage, capacity: int64[nodes, resources + 1]; the columns are `resources`.
        thresholds: of the first resources, without `pods` where the pool has no threshold for it.
        resources: those of the pool, and `pods` once.
    """

    percents: Percents
    nodes: tuple[MeasuredNode, ...]
    classes: tuple[NodeClass, ...]
    usage: Ints
    prod_usage: Ints
    capacity: Ints
    thresholds: Thresholds
    resources: tuple[str, ...]

    def rows(self, *classes: NodeClass) -> list[int]:
        """Returns the rows of nodes of a class; of several classes, those of the first come first."""
        return [row for each in classes for row, found in enumerate(self.classes) if found is each]


def classify(nodes: Sequence[MeasuredNode], pool: PoolArgs, expiration_ns: int, now_ns: int) -> ClassifiedPool:
    """Classifies the nodes that have a report younger than `expiration_ns`; the others take no part."""
    percents = completed(pool)
    fresh = tuple(each for each in nodes if each.reported_ns is not None and now_ns - each.reported_ns < expiration_ns)
    resources = (*percents.resources, *([] if PODS in percents.resources else [PODS]))
    shape = (len(fresh), len(resources))
    usage, prod_usage, capacity = (np.zeros(shape, np.int64) for _ in range(3))
    for row, node in enumerate(fresh):
        usage[row], prod_usage[row] = _usage(node, resources)
        capacity[row] = [node.capacity.get(name, 0) for name in resources]
    width = len(percents.resources)
    found = thresholds(percents, pool, capacity[:, :width], usage[:, :width], prod_usage[:, :width])
    blocked = np.array([node.node.spec.unschedulable for node in fresh], np.bool_)
    classes = _classes(usage[:, :width], prod_usage[:, :width], found, blocked) if fresh else ()
    return ClassifiedPool(percents, fresh, classes, usage, prod_usage, capacity, found, resources)


def _usage(node: MeasuredNode, resources: Sequence[str]) -> tuple[list[int], list[int]]:
    """Returns the usage of a node and of its prod pods, by resource.

    All reported pods count for the node, those alone that are on it and prod for prod.
    """
    total = [node.total.get(name, 0) for name in resources]
    prod = [node.prod_total.get(name, 0) for name in resources]
    if PODS in resources:
        column = resources.index(PODS)
        total[column], prod[column] = len(node.pods), sum(each.is_prod for each in node.pods)
    return total, prod


def _classes(usage: Ints, prod_usage: Ints, limits: Thresholds, blocked: NDArray[np.bool_]) -> tuple[NodeClass, ...]:
    node_low = ~(usage > limits.low).any(axis=1) & ~blocked
    node_high = (usage > limits.high).any(axis=1)
    prod_low = ~(prod_usage > limits.prod_low).any(axis=1) & ~blocked
    prod_high = (prod_usage > limits.prod_high).any(axis=1)
    order = list(NodeClass)
    holds = [
        node_low & prod_high,
        node_low & prod_low,
        node_low,
        node_high,
        prod_high,
        prod_low,
    ]
    classes = (
        NodeClass.PROD_HIGH, NodeClass.BOTH_LOW, NodeClass.LOW, NodeClass.HIGH, NodeClass.PROD_HIGH, NodeClass.PROD_LOW,
    )  # fmt: skip
    numbers = np.select(holds, [order.index(each) for each in classes], order.index(NodeClass.APPROPRIATE))
    return tuple(order[number] for number in numbers.tolist())


def as_amounts(resources: Sequence[str], row: Ints) -> Amounts:
    """Returns one row of an array by resource."""
    return dict(zip(resources, row.tolist(), strict=True))
