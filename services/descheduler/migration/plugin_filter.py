"""MigrationController as a plugin of the set `filter`: the pods that other plugins may choose.

A cycle checks tens of thousands of pods against the same jobs and workloads, so that what depends on the node, the
namespace or the workload of a pod alone is found once. That is exact: a pod with an active job of its own, which the
limits would not count, is refused before.

Source: spec/descheduler.md 3.3, 3.5.
"""

from collections.abc import Callable

from services.descheduler.framework.cycle_context import Filter
from services.descheduler.load_aware.measured_node import PodOnNode
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.decide_migration import Inputs, effective_facts
from services.descheduler.migration.eviction_checks import protection
from services.descheduler.migration.filter_chain import FilterChain, filter_for_plugins, is_forced
from services.descheduler.migration.rate_limits import RateLimits
from shared.kube.pod import Pod


def migration_filter(inputs: Inputs, args: MigrationArgs, now_ns: int) -> Filter:
    """Returns the filter of a cycle: protections, limits of migrations at once, and the limits of objects over time."""
    facts = effective_facts(inputs)
    chain = CycleFilter(filter_for_plugins(facts, args))
    limits = RateLimits(inputs.migration, facts, args, now_ns)

    def reason(pod: PodOnNode) -> str:
        return chain.reason(pod.pod) or limits.object_exceeded(pod.pod)

    return reason


class CycleFilter:
    """A filter chain over facts that do not change."""

    def __init__(self, chain: FilterChain) -> None:
        self._chain = chain
        active = [job for job in chain.facts.jobs.values() if job.is_active]
        self._moving = {text for job in active for text in (job.spec.pod_ref.uid, job.spec.pod_ref.key) if text}
        self._known: dict[tuple[str, ...], str] = {}

    def reason(self, pod: Pod) -> str:
        """Returns the first reason for which a plugin may not choose a pod, as `FilterChain.reason` does."""
        chain, metadata = self._chain, pod.metadata
        if (metadata.uid in self._moving or metadata.key in self._moving) and (found := chain.existing_job(pod)):
            return found
        if found := chain.scheduler(pod):
            return found
        if is_forced(pod):
            return ""
        owner, namespace, limits = pod.metadata.controller, metadata.namespace, chain.limits
        workload = (namespace, owner.uid if owner else "")
        return (
            protection(pod, chain.rules)
            or self._once(("replicas", *workload), chain.replicas, pod)
            or self._once(("globally",), limits.globally, pod)
            or self._once(("node", pod.spec.node_name), limits.per_node, pod)
            or self._once(("namespace", namespace), limits.per_namespace, pod)
            or self._once(("workload", *workload), limits.per_workload, pod)
        )

    def _once(self, key: tuple[str, ...], check: Callable[[Pod], str], pod: Pod) -> str:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = check(pod)
        return found
