"""Upstream's names of what a pass over a node does, by which problems and figures are told. Source: spec/slo-controller.md 3.1."""

from typing import NamedTuple

MID, BATCH, NORMALIZATION, AMPLIFICATION, GPU, RDMA = PLUGINS = (
    "MidResource",
    "BatchResource",
    "CPUNormalization",
    "ResourceAmplification",
    "GPUDeviceResource",
    "RDMADeviceResource",
)

CALCULATE, PREPARE = "ResourceCalculate", "NodePrepare"
"""Stages of a pass in which a plugin may fail here."""


class Trouble(NamedTuple):
    """What a plugin could not read or tell.

    Attributes:
        text: for people.
    """

    plugin: str
    stage: str
    text: str
