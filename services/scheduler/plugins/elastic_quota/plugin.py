"""ElasticQuota as a plugin of a profile: PostFilter alone, preemption inside a quota. `preemption.py` selects the victims.

Charges and the queue's gate are no part of the plugin: the quota ledger charges every pod of a quota, whatever its
profile.
"""

from typing import ClassVar

from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.post_filter import PostFilterCycle, PostFilterPlugin
from services.scheduler.plugins.elastic_quota import SPEC
from services.scheduler.plugins.elastic_quota.args import ElasticQuotaArgs
from services.scheduler.plugins.elastic_quota.preemption import QuotaPreemption


class ElasticQuota(PostFilterPlugin):
    """Evicts pods of lower priority of a quota for a pod that does not fit into it."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: ElasticQuotaArgs = ElasticQuotaArgs()) -> None:  # noqa: B008 (frozen)
        self.args = args

    def new_post_filter(self, cycle: PostFilterCycle) -> QuotaPreemption:
        """Makes the search for victims of one cycle."""
        return QuotaPreemption(cycle)
