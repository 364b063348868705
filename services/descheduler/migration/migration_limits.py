"""Limits on migrations at once: of the cluster, a node, a namespace and a workload; a pod beyond one waits.

Source: spec/descheduler.md 3.6, 3.7; upstream pkg/descheduler/controllers/migration/arbitrator/filter.go.
"""

from collections.abc import Callable, Iterator, Mapping

from services.descheduler.migration.cluster_facts import ClusterFacts, Workload
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.gang_minimum import breaks_gang
from services.descheduler.migration.pod_migration_job import RUNNING, PodMigrationJob
from services.descheduler.migration.workload_limits import workload_limit
from shared.domain.gang import gang_of
from shared.kube.pod import Pod

Reason = str
"""Why a pod may not move now, or is never moved, as a phrase; empty where it may."""


class MigrationLimits:
    """The limits against the jobs that count at one instant.

    While jobs are arbitrated, only those count that run or have passed; else every one that has not ended.
    """

    def __init__(
        self, facts: ClusterFacts, rules: MigrationArgs, passed: Mapping[str, object], *, arbitrating: bool
    ) -> None:
        """Counts nothing yet.

        Args:
            passed: uids of jobs that the arbitrator has let pass. Anyone may write the annotation that shows it, so it
                does not count.
            arbitrating: the pod is evaluated inside the arbitrator.
        """
        self._facts, self._rules, self._passed, self._arbitrating = facts, rules, passed, arbitrating

    def exceeded(self, pod: Pod) -> Reason:
        """Returns the first limit that a pod must wait for."""
        return next((reason for check in self.checks() if (reason := check(pod))), "")

    def checks(self) -> tuple[Callable[[Pod], Reason], ...]:
        """Returns the limits in their order."""
        return self.globally, self.per_node, self.per_namespace, self.per_workload

    def globally(self, pod: Pod) -> Reason:
        """Compares the number of all jobs of other pods."""
        limit = self._rules.max_globally
        if limit <= 0 or (count := sum(1 for _ in self._others(pod))) < limit:
            return ""
        return f"{count} jobs run, maxMigratingGlobally is {limit}"

    def per_node(self, pod: Pod) -> Reason:
        """Compares the number of other pods with a job on the pod's node."""
        node, limit, uid = pod.spec.node_name, self._rules.max_per_node, pod.metadata.uid
        if limit <= 0 or not node:
            return ""
        moving = (
            each for job in self._facts.jobs.values() if self._counts(job) for each in self._facts.pods_of_job(job)
        )
        others = {
            each.metadata.uid: None for each in moving if each.spec.node_name == node and each.metadata.uid != uid
        }
        count = len(others)
        return (
            f"{_pods(count)} {'leaves' if count == 1 else 'leave'} node {node}, maxMigratingPerNode is {limit}"
            if count >= limit
            else ""
        )

    def per_namespace(self, pod: Pod) -> Reason:
        """Compares the number of jobs for other pods of the namespace."""
        namespace, limit = pod.metadata.namespace, self._rules.max_per_namespace
        if limit <= 0:
            return ""
        count = sum(1 for job in self._others(pod) if job.spec.pod_ref.namespace == namespace)
        return f"{count} jobs in namespace {namespace}, maxMigratingPerNamespace is {limit}" if count >= limit else ""

    def per_workload(self, pod: Pod) -> Reason:
        """Compares the pods of the workload that move, and those that are unavailable or move."""
        owner, rules = pod.metadata.controller, self._rules
        if owner is None or not (rules.limits_migrating or rules.limits_unavailable):
            return ""
        workload, namespace = self._facts.workload(pod), pod.metadata.namespace
        moving = {
            each.metadata.uid: None
            for job in self._others(pod)
            if job.spec.pod_ref.namespace == namespace
            and (each := self._facts.pod(job.spec.pod_ref.key)) is not None
            and (its := each.metadata.controller) is not None
            and its.uid == owner.uid
        }
        if rules.limits_migrating and moving:
            limit = workload_limit(workload.replicas, rules.max_per_workload)
            if len(moving) >= limit:
                return (
                    workload.unknown
                    or f"{_pods(len(moving))} of {owner.kind} {owner.name} {'moves' if len(moving) == 1 else 'move'}, "
                    f"maxMigratingPerWorkload is {limit}"
                )
        if rules.limits_unavailable:
            limit = workload_limit(workload.replicas, rules.max_unavailable)
            absent = moving | {each.metadata.uid: None for each in workload.unavailable}
            if len(absent) >= limit:
                return workload.unknown or (
                    f"{_pods(len(absent))} of {owner.kind} {owner.name} {_absent(len(absent))}, "
                    f"maxUnavailablePerWorkload is {limit}"
                )
        return ""

    def never_by_gang(self, pod: Pod) -> Reason:
        """Returns why a pod's gang has no member to spare, though no job of its namespace runs that would give one back."""
        namespace = pod.metadata.namespace
        reason = breaks_gang(self._facts, pod)
        return "" if any(job.spec.pod_ref.namespace == namespace for job in self._others(pod)) else reason

    def per_gang(self, pod: Pod) -> Reason:
        """Compares the members of a gang that neither leave nor are to leave with its minimum."""
        if not gang_of(pod.metadata):
            return ""
        moving = {each.metadata.uid for job in self._others(pod) for each in self._facts.pods_of_job(job)}
        return breaks_gang(self._facts, pod, moving)

    def moves_in_gang(self, pod: Pod) -> Reason:
        """Returns which member of a pod's gang moves already, the pod itself included: a unit begins once none does."""
        gang = gang_of(pod.metadata)
        for job in self._facts.jobs.values():
            for each in self._facts.pods_of_job(job) if self._counts(job) else ():
                if gang_of(each.metadata) == gang:
                    return f"PodMigrationJob {job.name} moves {each.metadata.key} of its gang {gang}"
        return ""

    def _others(self, pod: Pod) -> Iterator[PodMigrationJob]:
        """Yields the jobs that count, but those with the uid of the pod itself, and those that name no pod."""
        for job in self._facts.jobs.values():
            named = job.spec.pod_ref
            if (named.uid or named.name) and named.uid != pod.metadata.uid and self._counts(job):
                yield job

    def _counts(self, job: PodMigrationJob) -> bool:
        if not self._arbitrating or job.status.phase == RUNNING:
            return job.is_active
        return job.is_active and job.uid in self._passed


def expected_replicas(pod: Pod, workload: Workload, rules: MigrationArgs) -> Reason:
    """Returns why a workload has too few pods for one to move: 1, or as many as its limits allow to move at once.

    One whose object is not known counts as one with 0 replicas, as upstream has it: none of its pods moves.
    """
    if not rules.expects_replicas or pod.metadata.controller is None:
        return ""
    replicas = workload.replicas
    limits = workload_limit(replicas, rules.max_per_workload), workload_limit(replicas, rules.max_unavailable)
    if replicas == 1 or replicas in limits:
        return workload.unknown or (
            f"its workload has {replicas} replicas, of which {max(limits)} may move at once (skipCheckExpectedReplicas)"
        )
    return ""


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _absent(count: int) -> str:
    return "moves or is unavailable" if count == 1 else "move or are unavailable"
