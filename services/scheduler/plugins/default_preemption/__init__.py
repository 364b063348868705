"""DefaultPreemption: pods of lower priority are evicted for a pod that fits nowhere."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.plugins.default_preemption.args import read_preemption_args
from shared.kube import resource_names

SPEC = PluginSpec(
    name="DefaultPreemption",
    implementation="services.scheduler.plugins.default_preemption.plugin:DefaultPreemption",
    points=frozenset((Point.POST_FILTER,)),
    read_args=read_preemption_args,
    reads=(resource_names.BUDGETS,),
)
