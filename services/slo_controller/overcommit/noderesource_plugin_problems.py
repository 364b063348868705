"""Upstream's plugin names, under which problems and metrics of a calculation appear. Source: spec/slo-controller.md 3.1."""

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
"""Stages of a calculation in which a plugin may fail."""


class PluginProblem(NamedTuple):
    """An input that a plugin could not read.

    Attributes:
        text: for people.
    """

    plugin: str
    stage: str
    text: str
