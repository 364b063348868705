"""Enforces CPU suppress on the cgroups of best effort, and restores them at the end.

Source: spec/node-agent.md 3.1.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from services.node_agent.cgroup.executor import CgroupValue, Executor
from services.node_agent.qos_manager.strategies import cpu_suppress
from services.node_agent.qos_manager.strategies.cpu_suppress import (
    CFS_QUOTA,
    CPUSET,
    CpusetLevels,
    Policy,
    SuppressInputs,
)
from services.node_agent.states_informer import annotations
from shared.agents.actions import AnyAction, Suppressed
from shared.domain.cpu_set import cpu_list
from shared.kube.instants import SECOND
from shared.kube.slo_config import ResourceThreshold

CPUS, QUOTA = "cpuset.cpus", "cpu.cfs_quota_us"
CGROUP_POLL_INTERVAL_NS = 10 * SECOND
"""Nanoseconds between two scans of the cgroups; a new container inherits its parent's cpuset in between."""
REPORT_INTERVAL_NS = 10 * SECOND
"""Nanoseconds between two reports of the cpu that best effort may use, which changes each second."""


class BestEffortCgroups(NamedTuple):
    """The cgroups of best effort.

    Attributes:
        top: the folder that holds its pods.
        pods: uid -> folder of each pod's, with those of its containers.
    """

    top: str
    pods: Mapping[str, tuple[str, tuple[str, ...]]]


class CpuSuppressEnforcer:
    """Limits best effort to the cpu that other pods leave."""

    def __init__(self, executor: Executor, report_action: Callable[[AnyAction], None]) -> None:
        self._executor = executor
        self._report_action = report_action
        self._status: Mapping[str, Policy] = {}
        self._reported: tuple[object, ...] = ()
        self._reported_ns = 0
        self._done: tuple[object, ...] = ()
        self._done_ns = 0
        self._original_cpus: str | None = None

    @property
    def used(self) -> bool:
        """Reports whether best effort is suppressed."""
        return self.policy is not None

    @property
    def policy(self) -> str | None:
        """The policy that suppresses best effort; None: none does."""
        return next((policy for policy, last in self._status.items() if last is Policy.USING), None)

    def current(self, top: str) -> tuple[frozenset[int], int] | None:
        """Returns the CPUs and the quota of best effort; None while it has no cgroup."""
        cpus, quota = self._executor.read(CPUS, top), self._executor.read(QUOTA, top)
        if cpus is None or quota is None:
            return None
        if self._original_cpus is None:
            self._original_cpus = cpus
        return annotations.cpus(cpus), int(quota)

    def run_cycle(
        self,
        threshold: ResourceThreshold,
        at: SuppressInputs,
        cgroups: Callable[[], BestEffortCgroups],
        top: str,
        now_ns: int,
    ) -> None:
        """Runs one cycle.

        Args:
            cgroups: finds the cgroups of best effort.
        """
        decision = cpu_suppress.decide(threshold, at, self._status)
        self._status = decision.status
        uids = frozenset(pod.metadata.uid for pod in at.pods)
        doing = (decision.cpus, uids)
        if decision.cpus and (doing != self._done or now_ns - self._done_ns >= CGROUP_POLL_INTERVAL_NS):
            found = cgroups()
            for levels in decision.cpus:
                self._enforce(levels, found)
            self._done, self._done_ns = doing, now_ns
        if decision.quota_us is not None and decision.quota_us != at.now_quota_us:
            self._executor.update(CgroupValue(QUOTA, top, str(decision.quota_us)), cached=False)
        self._report(decision, threshold, now_ns)

    def release(self, cgroups: BestEffortCgroups) -> None:
        """Restores the CPUs of best effort as the agent first found them, and removes the quota."""
        if self._original_cpus and self.used:
            cpus = annotations.cpus(self._original_cpus)
            self._enforce(CpusetLevels(cpus, cpus), cgroups)
        if self._status.get(CFS_QUOTA) is Policy.USING:
            self._executor.update(CgroupValue(QUOTA, cgroups.top, "-1"), cached=False)

    def _enforce(self, levels: CpusetLevels, cgroups: BestEffortCgroups) -> None:
        values: list[Iterable[CgroupValue]] = []
        if levels.folders is not None:
            text = cpu_list(levels.folders)
            values = [
                [CgroupValue(CPUS, cgroups.top, text)],
                [CgroupValue(CPUS, folder, text) for folder, _ in cgroups.pods.values()],
            ]
        if levels.containers is not None:
            text = cpu_list(levels.containers)
            values.append(
                [
                    CgroupValue(CPUS, folder, text)
                    for uid, (_, containers) in cgroups.pods.items()
                    if uid not in levels.spares
                    for folder in containers
                ]
            )
        if values and text:
            self._executor.update_levels(values, cached=False)

    def _report(self, decision: cpu_suppress.Decision, threshold: ResourceThreshold, now_ns: int) -> None:
        """Reports a change."""
        if decision.suppress_milli is None:
            if self._reported and threshold.enable is False:
                self._report_action(Suppressed("cpuset"))
                self._reported = ()
            return
        if self._reported and now_ns - self._reported_ns < REPORT_INTERVAL_NS:
            return
        allowed = max(decision.suppress_milli, 0)
        what: tuple[str, object]
        if threshold.cpu_suppress_policy == CFS_QUOTA:
            what, action = (CFS_QUOTA, decision.quota_us), Suppressed("cfsQuota", allowed)
            changed = decision.quota_us is not None and self._reported != what
        else:
            cpus = cpu_list(decision.cpus[-1].containers or ()) if decision.cpus else ""
            what, action = (CPUSET, cpus), Suppressed("cpuset", allowed, cpus)
            changed = bool(cpus) and self._reported != what
        if changed:
            self._reported, self._reported_ns = what, now_ns
            self._report_action(action)
