"""NodeResourcesFitPlus: scores by allocation, with a strategy for each resource."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.plugins.node_resources_fit_plus.args import read_fit_plus_args

SPEC = PluginSpec(
    name="NodeResourcesFitPlus",
    implementation="services.scheduler.plugins.node_resources_fit_plus.plugin:NodeResourcesFitPlus",
    points=frozenset((Point.SCORE,)),
    read_args=read_fit_plus_args,
)
