"""The filter of pods that may be evicted: what plugins ask before they choose a pod, and the arbitrator before it starts
a job.

Source: spec/descheduler.md 3.5, 4.1.
"""

from typing import NamedTuple

from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.eviction_checks import protection
from services.descheduler.migration.gang_minimum import gang_without_spare
from services.descheduler.migration.migration_limits import MigrationLimits, Reason, expected_replicas
from services.descheduler.migration.pod_migration_job import EVICT_ANNOTATION, EVICT_DIRECTLY, RESERVATION_FIRST
from shared.kube.pod import Pod


class FilterChain(NamedTuple):
    """The checks at one instant.

    Attributes:
        limits: see `MigrationLimits`; those of the arbitrator count other jobs than those of plugins.
    """

    facts: ClusterFacts
    rules: MigrationArgs
    limits: MigrationLimits

    def reason(self, pod: Pod) -> Reason:
        """Returns why a plugin may not have a pod evicted."""
        return self.existing_job(pod) or self.scheduler(pod) or self.non_retryable(pod) or self.retryable(pod)

    def existing_job(self, pod: Pod) -> Reason:
        """Returns the job that moves the pod already: found by the pod's uid, and by its name."""
        for job in self.facts.jobs.values():
            named = job.spec.pod_ref
            if job.is_active and (named.uid == pod.metadata.uid or named.key == pod.metadata.key):
                return f"PodMigrationJob {job.name} moves it"
        return ""

    def scheduler(self, pod: Pod) -> Reason:
        """Returns why no Reservation can hold its place: its scheduler does not know them."""
        rules, name = self.rules, pod.spec.scheduler_name
        if rules.default_mode != RESERVATION_FIRST or name in rules.scheduler_names:
            return ""
        return f"its scheduler {name} is not in schedulerNames"

    def non_retryable(self, pod: Pod, mode: str = "") -> Reason:
        """Returns why the pod is never evicted.

        Args:
            mode: of its job; empty for the default. Without a place that is held, no gang is left below its minimum.
        """
        found = self.never(pod)
        return found or (self.limits.never_by_gang(pod) if self._is_direct(mode) else "")

    def never(self, pod: Pod) -> Reason:
        """Returns why the pod is never evicted, whatever its gang."""
        return "" if is_forced(pod) else protection(pod, self.rules) or self.replicas(pod)

    def retryable(self, pod: Pod, mode: str = "") -> Reason:
        """Returns why the pod may not be evicted now; `mode` as in `non_retryable`."""
        if found := self.not_now(pod):
            return found
        if not self._is_direct(mode) and gang_without_spare(self.facts, pod):
            return self.limits.moves_in_gang(pod)
        return self.limits.per_gang(pod)

    def not_now(self, pod: Pod) -> Reason:
        """Returns why the pod may not be evicted now, whatever its gang."""
        return "" if is_forced(pod) else self.limits.exceeded(pod)

    def _is_direct(self, mode: str) -> bool:
        return (mode or self.rules.default_mode) == EVICT_DIRECTLY

    def removal(self, pod: Pod) -> Reason:
        """Returns why a pod that has ended may not be removed. The limits of its workload do not concern it: it takes
        nothing from it.
        """
        limits = self.limits
        if is_forced(pod):
            return ""
        return protection(pod, self.rules) or limits.globally(pod) or limits.per_node(pod) or limits.per_namespace(pod)

    def replicas(self, pod: Pod) -> Reason:
        """Returns why its workload has too few replicas."""
        if pod.metadata.controller is None:
            return ""
        return expected_replicas(pod, self.facts.workload(pod), self.rules)


def is_forced(pod: Pod) -> bool:
    """Reports whether the pod's annotation allows its eviction at any time, whatever its value."""
    return EVICT_ANNOTATION in (pod.metadata.annotations or {})


def filter_for_plugins(facts: ClusterFacts, rules: MigrationArgs) -> FilterChain:
    """Returns the filter that plugins use: all jobs that have not ended count."""
    return FilterChain(facts, rules, MigrationLimits(facts, rules, {}, arbitrating=False))
