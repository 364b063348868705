"""Runs the domain `cpusuppress`: the formula, the selection of CPUs, and rounds on a simulated tree of cgroups."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.node_agent.qos_manager.strategies import cpu_suppress
from services.node_agent.qos_manager.strategies.cpu_selection import Processor, select
from services.node_agent.qos_manager.strategies.cpu_suppress import (
    CpusetLevels,
    HostApp,
    Policy,
    SuppressInputs,
    Usage,
    suppress_share,
)
from services.node_agent.states_informer.annotations import ReservedCpus
from shared.domain.cpu_set import cpu_list, parse_cpus
from shared.domain.qos import kubernetes_qos
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.slo_config import HostApplication, ResourceThreshold


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs one case."""
    match op:
        case "selectCPUs":
            return {"selected": [select(query["want"], _processors(query)) for query in given["queries"]]}
        case "calculate":
            found = suppress_share(
                msgspec.convert(given["node"], Node),
                [msgspec.convert(pod["pod"], Pod) for pod in given["pods"]],
                _usage(given),
                [HostApp.of(msgspec.convert(app, HostApplication)) for app in given.get("hostApplications", ())],
                threshold_percent=given["thresholdPercent"],
                least_percent=given["minPercent"],
            )
            return {"suppressMilli": found.suppress_milli, "reservedMilli": found.reserved_milli}
    return {"rounds": _Rounds(given).run()}


class _Rounds:
    """The tree of cgroups of a case, and the strategy's rounds on it."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._pods = tuple(msgspec.convert(pod["pod"], Pod) for pod in given["pods"])
        self._top: frozenset[int] = parse_cpus(given["initial"]["cpuset"])
        self._quota: int = given["initial"]["quota"]
        self._folders: dict[str, frozenset[int]] = {}
        self._containers: dict[str, dict[str, frozenset[int]]] = {}
        for raw, pod in zip(given["pods"], self._pods, strict=True):
            if kubernetes_qos(pod) == "BestEffort":
                self._folders[pod.metadata.uid] = self._top
                self._containers[pod.metadata.uid] = dict.fromkeys(raw["cgroupContainers"], self._top)

    def run(self) -> list[dict[str, Any]]:
        answers, status = [], dict[str, Policy]()
        for now in self._given["rounds"]:
            decision = cpu_suppress.Decision(None, (), None, status)
            if self._given["gates"]["BECPUSuppress"]:
                threshold = now.get("threshold")
                decision = cpu_suppress.decide(
                    msgspec.convert(threshold, ResourceThreshold | None), self._situation(now), status
                )
            status = dict(decision.status)
            for levels in decision.cpus:
                self._carry_out(levels)
            if decision.quota_us is not None:
                self._quota = decision.quota_us
            answers.append(
                {
                    "suppressMilli": decision.suppress_milli,
                    "beCPUSet": cpu_list(self._top),
                    "beQuota": self._quota,
                    "pods": {
                        uid: {
                            "cpuset": cpu_list(cpus),
                            "containers": {name: cpu_list(own) for name, own in self._containers[uid].items()},
                        }
                        for uid, cpus in self._folders.items()
                    },
                    "policyStatus": {name: policy.value for name, policy in status.items()},
                }
            )
        return answers

    def _situation(self, now: Mapping[str, Any]) -> SuppressInputs:
        given = self._given
        return SuppressInputs(
            node=msgspec.convert(given["node"], Node),
            pods=self._pods,
            usage=_usage(now),
            host_apps=tuple(
                HostApp.of(msgspec.convert(app, HostApplication)) for app in given.get("hostApplications", ())
            ),
            processors=_processors(given),
            reserved_cpus=ReservedCpus.of(given.get("topologyAnnotations")),
            now_cpus=self._top,
            now_quota_us=self._quota,
            manager=given["gates"]["BECPUManager"],
        )

    def _carry_out(self, levels: CpusetLevels) -> None:
        if levels.folders is not None:
            self._top = levels.folders
            self._folders = dict.fromkeys(self._folders, levels.folders)
        if levels.containers is not None:
            for uid, containers in self._containers.items():
                if uid not in levels.spares:
                    self._containers[uid] = dict.fromkeys(containers, levels.containers)


def _processors(given: Mapping[str, Any]) -> tuple[Processor, ...]:
    return tuple(Processor(*one) for one in given["processors"])


def _usage(given: Mapping[str, Any]) -> Usage:
    node = given["nodeCPU"]
    return Usage(
        None if node is None else _nanos(node),
        {uid: _nanos(used) for uid, used in given["podCPU"].items()},
        {name: _nanos(used) for name, used in given["hostAppCPU"].items()},
    )


def _nanos(cores: float) -> int:
    return round(cores * 10**9)
