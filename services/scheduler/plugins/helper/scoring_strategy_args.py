"""Scoring strategies of the resource plugins, and the resources that they weigh."""

import msgspec

LEAST, MOST, RATIO = "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"

ALWAYS_SCORED = ("cpu", "memory", "ephemeral-storage")
"""Resources that a node is scored by for every pod; any other one only for pods that ask for it."""


class WeightedResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A resource and the weight of its part in the score, 1..100; 0 and absent mean 1."""

    name: str
    weight: int = 1
