"""Core scheduling: groups of pods that may share a core, and `cpu.idle` of the kube-QoS cgroups.

Source: spec/node-agent.md 4.8.
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

from shared.domain.qos import QoS
from shared.kube.slo_config import CpuQos, ResourceQos

GROUP = "koordinator.sh/core-sched-group-id"
POLICY = "koordinator.sh/core-sched-policy"
EXPELLER = "-expeller"


class _Class(NamedTuple):
    enabled: bool = False
    expeller: bool = False
    idle: bool = False


class CoreRule(NamedTuple):
    """A NodeSLO's settings of each class."""

    lsr: _Class
    ls: _Class
    be: _Class

    @classmethod
    def of(cls, strategy: ResourceQos | None) -> Self:
        """Reads a strategy; all classes are disabled unless core scheduling is the policy."""
        policies = strategy.policies if strategy else None
        if strategy is None or policies is None or policies.cpu_policy != "coreSched":
            return cls(_Class(), _Class(), _Class())
        classes = (strategy.lsr_class, strategy.ls_class, strategy.be_class)
        return cls(*(_class(each.cpu_qos if each else None) for each in classes))

    @property
    def enabled(self) -> bool:
        """Reports whether any class is enabled."""
        return self.lsr.enabled or self.ls.enabled or self.be.enabled

    def idle(self) -> dict[str, int]:
        """Returns `cpu.idle` by Kubernetes class, of the cgroups in which LSR, LS and BE pods lie."""
        guaranteed = self.lsr if self.lsr.enabled else self.ls
        return {"Guaranteed": int(guaranteed.idle), "Burstable": int(self.ls.idle), "BestEffort": int(self.be.idle)}

    def group(self, uid: str, labels: Mapping[str, str], kube_qos: str) -> str | None:
        """Returns a pod's group; None when it is in none. Pods of one group may share a core with each other only."""
        found = self._of_pod(labels, kube_qos)
        policy = labels.get(POLICY, "")
        if not found.enabled or policy == "none":
            return None
        group = uid if policy == "exclusive" else labels.get(GROUP, "")
        return f"{group}{EXPELLER}" if found.expeller else group

    def _of_pod(self, labels: Mapping[str, str], kube_qos: str) -> _Class:
        match labels.get("koordinator.sh/qosClass", ""):
            case QoS.LSE | QoS.LSR:
                return self.lsr
            case QoS.LS:
                return self.ls
            case QoS.BE:
                return self.be
            case QoS.SYSTEM:
                return _Class()
        match kube_qos:
            case "Guaranteed":
                return self.lsr if self.lsr.enabled else self.ls
            case "Burstable":
                return self.ls
            case "BestEffort":
                return self.be
        return _Class()


def _class(cpu_qos: CpuQos | None) -> _Class:
    if cpu_qos is None:
        return _Class()
    return _Class(bool(cpu_qos.enable), bool(cpu_qos.core_expeller), cpu_qos.sched_idle == 1)
