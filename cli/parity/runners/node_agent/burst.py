"""Runs CPU burst: rounds on simulated cgroups."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.runners.node_agent.memory import node_pod
from cli.parity.runners.node_agent.metric_store import Store
from services.node_agent.qos_manager.strategies.cpu_burst import (
    BurstLimiters,
    CurrentLimits,
    Measured,
    PodAnnotation,
    PodBurst,
    applies,
    node_state,
)
from shared.kube.instants import SECOND, instant_ns
from shared.kube.slo_config import CpuBurst


def cpu_burst(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `cpuBurst`."""
    return {"rounds": _Node(given).run()}


class _Node:
    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._pods = [node_pod(pod) for pod in given["pods"]]
        self._containers = {cid: dict(held) for cid, held in given["initial"]["containers"].items()}
        self._folders = {uid: dict(held) for uid, held in given["initial"]["pods"].items()}
        self._tokens: Mapping[str, int] = {}
        self._bursts = BurstLimiters(lambda cid, _: self._tokens[cid])

    def run(self) -> list[dict[str, Any]]:
        rounds = []
        for now in self._given["rounds"]:
            self._tokens = now.get("newLimiterTokens") or {}
            state = "skipped"
            if now["strategy"] is not None:
                state = self._round(now, _strategy(now["strategy"]))
            rounds.append(
                {
                    "nodeState": state,
                    "containers": {cid: dict(held) for cid, held in self._containers.items()},
                    "pods": {uid: dict(held) for uid, held in self._folders.items()},
                    "limiters": {
                        cid: {"capacity": one.capacity, "token": one.token, "allowed": one.allows}
                        for cid, one in self._bursts.limiters.items()
                    },
                }
            )
        return rounds

    def _round(self, now: Mapping[str, Any], strategy: CpuBurst) -> str:
        given, store, now_ns = self._given, Store(now["series"]), instant_ns(now["time"])
        window = min(5 * given["reconcileIntervalSeconds"], 10) * SECOND
        latest = 2 * given["collectIntervalSeconds"] * SECOND
        cores = {
            each.pod.metadata.uid: used
            for each in self._pods
            if (used := store.mean("pod_cpu_usage", now_ns - window, now_ns, pod_uid=each.pod.metadata.uid)) is not None
        }
        state = node_state(
            strategy.share_pool_threshold_percent,
            given["processors"] if given["cpuInfo"] else None,
            store.mean("node_cpu_usage", now_ns - window, now_ns),
            cores,
            [each.pod for each in self._pods],
        )

        def measured(cid: str) -> Measured:
            begin = now_ns - latest
            return Measured(
                store.last("container_cpu_throttled", begin, now_ns, container_id=cid),
                store.last("container_cpu_usage", begin, now_ns, container_id=cid),
            )

        for each in self._pods:
            if applies(each.pod):
                uid = each.pod.metadata.uid

                def held(cid: str, uid: str = uid) -> CurrentLimits:
                    found = self._containers.get(cid) if cid else self._folders.get(uid)
                    return CurrentLimits(found["quota"], found["burst"]) if found else CurrentLimits(None, None)

                self._carry_out(self._bursts.decide(each, strategy, state, held, measured, now_ns))
        self._bursts.forget_idle(now_ns)
        return state.value

    def _carry_out(self, desired: PodBurst) -> None:
        for cid, burst in desired.containers_burst_us.items():
            if cid in self._containers:
                self._containers[cid]["burst"] = burst
        for cid, quota in desired.containers_quota_us.items():
            self._containers[cid]["quota"] = quota
        if desired.uid in self._folders:
            self._folders[desired.uid]["burst"] = desired.burst_us
            if desired.quota_us is not None:
                self._folders[desired.uid]["quota"] = desired.quota_us


def _strategy(raw: Mapping[str, Any]) -> CpuBurst:
    """Returns a recorded strategy, which may lie outside of the bounds of a NodeSLO."""
    return CpuBurst(**msgspec.structs.asdict(msgspec.convert(raw, PodAnnotation)))
