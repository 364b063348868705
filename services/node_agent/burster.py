"""Carries CPU burst out on the cgroups of pods and containers. Source: spec/node-agent.md 3.4."""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from services.node_agent.cgroup.executor import Executor, Wanted
from services.node_agent.layout import Placed
from services.node_agent.qos.cpu_burst import ANNOTATION, Bursts, Held, Measured, NodeState, PodBurst, concerns
from services.node_agent.slo_spec import CpuBurst
from shared.agents.deeds import AnyDeed, Burst
from shared.kube.instants import SECOND

QUOTA, BUFFER = "cpu.cfs_quota_us", "cpu.cfs_burst_us"


class _Counters(NamedTuple):
    """Of a container: since when, its CPU time, periods in all and throttled."""

    at_ns: int
    cpu_ns: int
    periods: int
    throttled: int


class Burster:
    """Lets throttled containers burst.

    Attributes:
        bursts: the limiters.
    """

    def __init__(self, executor: Executor, tell: Callable[[AnyDeed], None]) -> None:
        self._executor = executor
        self._tell = tell
        self.bursts = Bursts(lambda _, capacity: int(capacity * random.uniform(0, 0.5)))  # noqa: S311  spreads containers
        self._before: dict[str, _Counters] = {}
        self._measured: dict[str, Measured] = {}
        self._touched: set[str] = set()

    def concerned(self, strategy: CpuBurst, pods: Iterable[Placed]) -> list[Placed]:
        """The pods whose turn it is: under a policy, or with something to take back."""
        on = strategy.policy not in {"", "none"}
        return [
            each
            for each in pods
            if concerns(each.pod)
            and (on or ANNOTATION in (each.pod.metadata.annotations or {}) or each.pod.metadata.uid in self._touched)
        ]

    def round(self, strategy: CpuBurst, state: NodeState, pods: Iterable[Placed], now_ns: int) -> None:
        """One round for the pods that are concerned."""
        seen: set[str] = set()
        for each in pods:
            folders = {"": each.folder, **each.containers}
            for cid in each.seen.ids.values():
                seen.add(cid)
                self._measure(cid, folders[cid], now_ns)

            def held(cid: str, folders: Mapping[str, str] = folders) -> Held:
                return self._held(folders.get(cid))

            wanted = self.bursts.decide(
                each.seen, strategy, state, held, lambda cid: self._measured.get(cid, Measured(None, None)), now_ns
            )
            self._carry_out(wanted, folders)
        for cid in self._before.keys() - seen:
            del self._before[cid]
            self._measured.pop(cid, None)
        self.bursts.forget_idle(now_ns)

    def _held(self, folder: str | None) -> Held:
        if folder is None:
            return Held(None, None)
        quota = self._executor.known(QUOTA, folder)
        return Held(int(quota) if quota is not None else None, None)

    def _measure(self, cid: str, folder: str, now_ns: int) -> None:
        counted = self._executor.cpu_counters(folder)
        if counted is None:
            self._measured.pop(cid, None)
            return
        now = _Counters(now_ns, *counted)
        before = self._before.get(cid)
        self._before[cid] = now
        if before is None or now.cpu_ns < before.cpu_ns or not 0 < now_ns - before.at_ns < 20 * SECOND:
            return
        periods = now.periods - before.periods
        throttled = (now.throttled - before.throttled) / periods if periods > 0 else 0.0
        self._measured[cid] = Measured(throttled, (now.cpu_ns - before.cpu_ns) / (now_ns - before.at_ns))

    def _carry_out(self, wanted: PodBurst, folders: Mapping[str, str]) -> None:
        update = self._executor.update
        for cid, burst in wanted.containers_burst_us.items():
            update(Wanted(BUFFER, folders[cid], str(burst)))
        update(Wanted(BUFFER, folders[""], str(wanted.burst_us)))
        if wanted.burst_us or wanted.containers_quota_us:
            self._touched.add(wanted.uid)
        elif not any(cid in self.bursts.limiters for cid in wanted.containers_burst_us):
            self._touched.discard(wanted.uid)
        grow = {cid: quota for cid, quota in wanted.containers_quota_us.items() if cid in wanted.grows}
        shrink = {cid: quota for cid, quota in wanted.containers_quota_us.items() if cid not in wanted.grows}
        for cid, quota in shrink.items():
            update(Wanted(QUOTA, folders[cid], str(quota)))
        if wanted.quota_us is not None:
            update(Wanted(QUOTA, folders[""], str(wanted.quota_us)))
        for cid, quota in grow.items():
            update(Wanted(QUOTA, folders[cid], str(quota)))
        for cid, quota in wanted.containers_quota_us.items():
            self._tell(Burst(wanted.uid, cid, cfs_quota_us=quota))
