"""NodeResourcesBalancedAllocation: prefers nodes whose resources would be used evenly."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.plugins.node_resources_balanced_allocation.args import read_balance_args

SPEC = PluginSpec(
    name="NodeResourcesBalancedAllocation",
    implementation="services.scheduler.plugins.node_resources_balanced_allocation.plugin:NodeResourcesBalancedAllocation",
    points=frozenset((Point.SCORE,)),
    read_args=read_balance_args,
)
