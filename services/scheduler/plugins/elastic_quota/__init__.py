"""ElasticQuota: pods of a quota are evicted for a pod of higher priority that does not fit into the quota."""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.plugins.elastic_quota.args import UNUSED, read_quota_args
from shared.kube import resource_names

SPEC = PluginSpec(
    name="ElasticQuota",
    implementation="services.scheduler.plugins.elastic_quota.plugin:ElasticQuota",
    points=frozenset((Point.POST_FILTER,)),
    read_args=read_quota_args,
    unused_args=UNUSED,
    reads=(resource_names.BUDGETS,),
)
