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
        return chain.reason(pod) or limits.object_exceeded(pod.pod)

    return reason


class CycleFilter:
    """A filter chain over facts that do not change."""

    def __init__(self, chain: FilterChain) -> None:
        self._chain = chain
        active = [job for job in chain.facts.jobs.values() if job.is_active]
        self._moving = {text for job in active for text in (job.spec.pod_ref.uid, job.spec.pod_ref.key) if text}
        self._known: dict[tuple[str, ...], str] = {}
        self._workloads: dict[tuple[str, str], tuple[str, str]] = {}

    def reason(self, pod: PodOnNode) -> str:
        """Returns the first reason for which a plugin may not choose a pod, as `FilterChain.reason` does."""
        chain, body = self._chain, pod.pod
        if pod.gang:
            return chain.reason(body)
        # Without an active job no limit on jobs is reached, and no pod is moved by one.
        if (
            self._moving
            and (body.metadata.uid in self._moving or pod.key in self._moving)
            and (found := chain.existing_job(body))
        ):
            return found
        if found := chain.scheduler(body):
            return found
        if body.has_ended:
            return chain.removal(body)
        if is_forced(body):
            return ""
        if found := _protection(pod, chain.rules):
            return found
        replicas, at_once = self._of_workload(pod)
        return replicas or (self._of_jobs(body) if self._moving else "") or at_once

    def _of_workload(self, pod: PodOnNode) -> tuple[str, str]:
        """Returns why the workload of a pod has too few replicas, and why no more of its pods may move at once."""
        if pod.owner is None:
            return "", ""
        key = pod.pod.metadata.namespace, pod.owner.uid
        found = self._workloads.get(key)
        if found is None:
            chain = self._chain
            found = self._workloads[key] = chain.replicas(pod.pod), chain.limits.per_workload(pod.pod)
        return found

    def _of_jobs(self, pod: Pod) -> str:
        limits = self._chain.limits
        return (
            self._once(("globally",), limits.globally, pod)
            or self._once(("node", pod.spec.node_name), limits.per_node, pod)
            or self._once(("namespace", pod.metadata.namespace), limits.per_namespace, pod)
        )

    def _once(self, key: tuple[str, ...], check: Callable[[Pod], str], pod: Pod) -> str:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = check(pod)
        return found


def _protection(pod: PodOnNode, rules: MigrationArgs) -> str:
    """Returns `protection` of a pod: a function of the pod and the rules, so that it is found once for both."""
    if pod.protected is None or pod.protected[0] is not rules:
        pod.protected = rules, protection(pod.pod, rules)
    return pod.protected[1]
