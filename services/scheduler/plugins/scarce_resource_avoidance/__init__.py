"""ScarceResourceAvoidance: keeps pods that need no scarce resource away from the nodes that have it."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.plugins.scarce_resource_avoidance.args import read_scarce_args

SPEC = PluginSpec(
    name="ScarceResourceAvoidance",
    implementation="services.scheduler.plugins.scarce_resource_avoidance.plugin:ScarceResourceAvoidance",
    points=frozenset((Point.SCORE,)),
    read_args=read_scarce_args,
)
