"""Scores nodes by the GPU capacity that a pod would leave there without a use for the workload: two policies.

GpuFragmentation is the published fragmentation gradient descent; GpuPacking counts what pods can really use, with the
CPU, memory and single GPUs of the node, and GPUs that the node's CPU cannot feed.
"""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.plugins.gpu_packing.args import read_packing_args

FRAGMENTATION_SPEC = PluginSpec(
    name="GpuFragmentation",
    implementation="services.scheduler.plugins.gpu_packing.plugin:GpuFragmentation",
    points=frozenset((Point.SCORE,)),
    read_args=read_packing_args,
    reserves=True,
)
PACKING_SPEC = PluginSpec(
    name="GpuPacking",
    implementation="services.scheduler.plugins.gpu_packing.plugin:GpuPacking",
    points=frozenset((Point.SCORE,)),
    read_args=read_packing_args,
    reserves=True,
)
