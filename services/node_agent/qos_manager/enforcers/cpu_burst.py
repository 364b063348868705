"""Enforces CPU burst on the cgroups of pods and containers. Source: spec/node-agent.md 3.4."""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from services.node_agent.cgroup.cpu_conversions import quota
from services.node_agent.cgroup.executor import CgroupValue, Executor, WriteResult
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.open_counter_files import OpenFile, number
from services.node_agent.qos_manager.strategies import cpu_burst
from services.node_agent.qos_manager.strategies.cpu_burst import (
    ANNOTATION,
    BurstLimiters,
    Measured,
    NodeState,
    PodBurst,
    applies,
    limit_milli,
)
from shared.agents.actions import AnyAction, Burst
from shared.kube.instants import SECOND
from shared.kube.slo_config import CpuBurst

QUOTA, BUFFER = "cpu.cfs_quota_us", "cpu.cfs_burst_us"
REPORT_INTERVAL_NS = 60 * SECOND
STAT_BYTES = 1_024
"""Enough for cpu.stat."""


class _Counters(NamedTuple):
    """Counters of a container at an instant: CPU time, periods, and throttled periods."""

    at_ns: int
    cpu_ns: int
    periods: int
    throttled: int


class _Files(NamedTuple):
    """A container's open cpu.stat, and in v1 its cpuacct.usage."""

    stat: OpenFile
    usage: OpenFile | None

    def close(self) -> None:
        self.stat.close()
        if self.usage is not None:
            self.usage.close()


class CpuBurstEnforcer:
    """Raises the quotas of throttled containers for a while.

    Attributes:
        limiters: the limiters.
    """

    def __init__(self, executor: Executor, report_action: Callable[[AnyAction], None]) -> None:
        self._executor = executor
        self._report_action = report_action
        self.limiters = BurstLimiters(lambda _, capacity: int(capacity * random.uniform(0, 0.5)))  # noqa: S311  spreads containers
        self._files: dict[str, _Files] = {}
        self._before: dict[str, _Counters] = {}
        self._measured: dict[str, Measured] = {}
        self._scaled: set[str] = set()
        self._settled: dict[str, tuple[CpuBurst, PodCgroups]] = {}
        self._reported_ns: dict[str, int] = {}
        self._capped = False
        self._pods_under_burst: tuple[CpuBurst | None, list[PodCgroups], list[PodCgroups]] = (None, [], [])

    def pods_under_burst(self, strategy: CpuBurst, pods: list[PodCgroups]) -> list[PodCgroups]:
        """Returns the pods to be handled: those under a policy, and those with values to restore."""
        on = strategy.policy not in {"", "none"}
        if on and self._pods_under_burst[0] is strategy and self._pods_under_burst[1] is pods:
            return self._pods_under_burst[2]
        found = [
            each
            for each in pods
            if (on or ANNOTATION in (each.pod.metadata.annotations or {}) or each.pod.metadata.uid in self._settled)
            and applies(each.pod)
        ]
        self._pods_under_burst = (strategy, pods, found)
        return found

    def run_cycle(
        self, strategy: CpuBurst, state: Callable[[], NodeState], pods: Iterable[PodCgroups], now_ns: int
    ) -> NodeState | None:
        """Runs one cycle for the given pods; returns the node's state, if it was computed.

        A pod that is not throttled, has its own quota and has its buffer already is skipped, unless a limiter counts
        its usage.
        """
        seen: set[str] = set()
        uids: set[str] = set()
        busy: NodeState | None = None
        limited = (strategy.cfs_quota_burst_period_seconds or 0) >= 0
        for each in pods:
            uid = each.pod.metadata.uid
            uids.add(uid)
            throttled = False
            own = ANNOTATION in (each.pod.metadata.annotations or {})
            for cid in each.node_pod.ids.values():
                seen.add(cid)
                throttled |= self._measure(cid, each.containers[cid], now_ns, usage=limited or own)
            settled = self._settled.get(uid)
            if (
                not (throttled or limited or own or uid in self._scaled)
                and settled is not None
                and settled[0] is strategy
                and settled[1].containers == each.containers
                and settled[1].pod is each.pod
            ):
                continue
            if busy is None:
                busy = state()
            folders = {"": each.folder, **each.containers}

            def current(cid: str, folders: Mapping[str, str] = folders) -> cpu_burst.CurrentLimits:
                return self._current_limits(folders.get(cid))

            desired = self.limiters.decide(
                each.node_pod,
                strategy,
                busy,
                current,
                lambda cid: self._measured.get(cid, Measured(None, None)),
                now_ns,
            )
            self._enforce(desired, each, folders, now_ns)
            self._settled[uid] = (strategy, each)
        for cid in self._files.keys() - seen:
            self._files.pop(cid).close()
            self._before.pop(cid, None)
            self._reported_ns.pop(cid, None)
            self._measured.pop(cid, None)
        for uid in self._settled.keys() - uids:
            del self._settled[uid]
        self._scaled &= uids
        self.limiters.forget_idle(now_ns)
        return busy

    def _current_limits(self, folder: str | None) -> cpu_burst.CurrentLimits:
        if folder is None:
            return cpu_burst.CurrentLimits(None, None)
        quota = self._executor.cached_value(QUOTA, folder)
        return cpu_burst.CurrentLimits(int(quota) if quota is not None else None, None)

    def _measure(self, cid: str, folder: str, now_ns: int, *, usage: bool) -> bool:
        """Samples a container; reports whether it was throttled since the last sample.

        Args:
            usage: sample its CPU time too, which only limiters need.
        """
        try:
            files = self._files.get(cid)
            if files is None:
                files = self._files[cid] = self._opened(folder)
            text = files.stat.read(STAT_BYTES)
            periods, throttled = number(text, b"nr_periods"), number(text, b"nr_throttled")
            cpu_ns = 0
            if usage:
                cpu_ns = int(files.usage.read(64)) if files.usage else number(text, b"usage_usec") * 1000
        except (OSError, ValueError):
            self._measured.pop(cid, None)
            return False
        now, before = _Counters(now_ns, cpu_ns, periods, throttled), self._before.get(cid)
        self._before[cid] = now
        if before is None or cpu_ns < before.cpu_ns or not 0 < now_ns - before.at_ns < 20 * SECOND:
            return False
        passed = periods - before.periods
        part = (throttled - before.throttled) / passed if passed > 0 else 0.0
        counted = usage and before.cpu_ns > 0
        self._measured[cid] = Measured(part, (cpu_ns - before.cpu_ns) / (now_ns - before.at_ns) if counted else None)
        return part > 0

    def _opened(self, folder: str) -> _Files:
        """Opens a container's files.

        Raises:
            OSError: one cannot be opened.
        """
        tree = self._executor.tree
        if tree.version == 2:
            return _Files(OpenFile(tree.root / folder / "cpu.stat"), None)
        stat = OpenFile(tree.root / "cpu" / folder / "cpu.stat")
        try:
            return _Files(stat, OpenFile(tree.root / "cpuacct" / folder / "cpuacct.usage"))
        except OSError:
            stat.close()
            raise

    def _enforce(self, desired: PodBurst, each: PodCgroups, folders: Mapping[str, str], now_ns: int) -> None:
        update = self._executor.update
        limits = {each.node_pod.ids.get(one.name): limit_milli(one) for one in each.pod.spec.containers}
        for cid, burst in desired.containers_burst_us.items():
            self._buffer(folders[cid], burst, limits.get(cid, 0))
        self._buffer(folders[""], desired.burst_us, sum(limits.values()) if all(limits.values()) else 0)
        # The kernel rejects a child's quota above its parent's: shrink containers, set the pod, then grow the rest.
        shrink = {cid: us for cid, us in desired.containers_quota_us.items() if cid not in desired.grows}
        done = {cid: update(CgroupValue(QUOTA, folders[cid], str(us))) for cid, us in shrink.items()}
        if desired.quota_us is not None:
            update(CgroupValue(QUOTA, folders[""], str(desired.quota_us)))
        grow = {cid: us for cid, us in desired.containers_quota_us.items() if cid in desired.grows}
        done |= {cid: update(CgroupValue(QUOTA, folders[cid], str(us))) for cid, us in grow.items()}
        for cid, us in desired.containers_quota_us.items():
            if done[cid] is WriteResult.WRITTEN:
                self._report(desired.uid, cid, us, quota(limits.get(cid, 0)), now_ns)
        above = any(
            (self._current_limits(folders[one]).quota_us or 0) > quota(limits.get(one, 0)) > 0
            for one in desired.containers_burst_us
        )
        (self._scaled.add if above else self._scaled.discard)(desired.uid)

    def _report(self, uid: str, cid: str, us: int, base: int, now_ns: int) -> None:
        """Reports when a container leaves its quota or returns to it, and in between its quota at intervals."""
        reported_ns = self._reported_ns.get(cid)
        if us != base and reported_ns is not None and now_ns - reported_ns < REPORT_INTERVAL_NS:
            return
        if us == base:
            self._reported_ns.pop(cid, None)
        else:
            self._reported_ns[cid] = now_ns
        self._report_action(Burst(uid, cid, cfs_quota_us=us))

    def _buffer(self, folder: str, burst_us: int, limit: int) -> None:
        """Sets the burst buffer of a cgroup.

        Kernels from kernel.org accept no more than its quota, so that is the bound once a write was rejected.
        """
        most = quota(limit)
        bounded = min(burst_us, most) if self._capped and most > 0 else burst_us
        if (
            self._executor.update(CgroupValue(BUFFER, folder, str(bounded))) is WriteResult.REFUSED
            and not self._capped
            and most > 0
        ):
            self._capped = True
            self._executor.update(CgroupValue(BUFFER, folder, str(min(burst_us, most))))
