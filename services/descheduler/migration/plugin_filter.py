"""MigrationController as a plugin of the set `filter`: the pods that other plugins may choose.

Source: spec/descheduler.md 3.3, 3.5.
"""

from services.descheduler.framework.cycle_context import Filter
from services.descheduler.load_aware.measured_node import PodOnNode
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.decide_migration import Inputs, effective_facts
from services.descheduler.migration.eviction_rules import eviction_rules
from services.descheduler.migration.filter_chain import filter_for_plugins
from services.descheduler.migration.rate_limits import RateLimits


def migration_filter(inputs: Inputs, args: MigrationArgs, now_ns: int) -> Filter:
    """Returns the filter of a cycle: protections, limits of migrations at once, and the limits of objects over time."""
    facts = effective_facts(inputs)
    chain = filter_for_plugins(facts, eviction_rules(args))
    limits = RateLimits(inputs.migration, facts, args, now_ns)

    def reason(pod: PodOnNode) -> str:
        return chain.reason(pod.pod) or limits.object_exceeded(pod.pod)

    return reason
