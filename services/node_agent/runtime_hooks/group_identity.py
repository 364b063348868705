"""Group identity: precedence of threads on a shared core, by `cpu.bvt_warp_ns`. Source: spec/node-agent.md 4.3."""

from collections.abc import Mapping
from typing import NamedTuple, Self

import msgspec

from shared.domain.qos import QoS, kubernetes_qos, raw_qos
from shared.errors import KoordError
from shared.kube.json_text import read_json
from shared.kube.pod import Pod
from shared.kube.slo_config import CpuQos, QosClass, ResourceQos

ANNOTATION = "koordinator.sh/cpuQOS"
DEFAULTS = {QoS.LSR: 2, QoS.LS: 2, QoS.BE: -1}


class BadCpuQos(KoordError):
    """A pod's annotation that is invalid; the pod keeps its value."""

    def __init__(self, pod: str, reason: str) -> None:
        super().__init__(f"pod {pod}: annotation {ANNOTATION}: {reason}")


class Identities(NamedTuple):
    """The identity of each class: its value, 0 when the class is disabled.

    Attributes:
        enabled: the classes that are enabled.
    """

    enabled: frozenset[QoS]
    values: Mapping[QoS, int]

    @classmethod
    def of(cls, strategy: ResourceQos | None) -> Self:
        """Reads a NodeSLO's strategy; all classes are disabled when it has another policy."""
        policies = strategy.policies if strategy else None
        ours = not policies or (policies.cpu_policy or "groupIdentity") == "groupIdentity"
        values, enabled = dict.fromkeys(DEFAULTS, 0), set()
        for qos, cpu_qos in _classes(strategy):
            if ours and cpu_qos is not None and cpu_qos.enable:
                enabled.add(qos)
                values[qos] = DEFAULTS[qos] if cpu_qos.group_identity is None else cpu_qos.group_identity
        return cls(frozenset(enabled), values)

    def of_class(self, qos: QoS) -> int | None:
        """Returns the value of a QoS class; None when it has none of its own."""
        return self.values.get(QoS.LSR if qos is QoS.LSE else qos)

    def of_kube(self, kube_qos: str) -> int:
        """Returns the value of a pod by its Kubernetes class alone; 0 for an unknown one."""
        match kube_qos:
            case "Guaranteed":
                return self.values[QoS.LSR] if QoS.LSR in self.enabled else self.values[QoS.LS]
            case "Burstable":
                return self.values[QoS.LS]
            case "BestEffort":
                return self.values[QoS.BE]
        return 0

    def of_folder(self, kube_qos: str) -> int:
        """Returns the value of one of the three cgroups that hold pods; the one above all stays at 0."""
        return 0 if kube_qos == "Guaranteed" else self.of_kube(kube_qos)

    def of_pod(self, pod: Pod) -> int:
        """Returns the value of a pod; an LS pod may have its own.

        Raises:
            BadCpuQos: its annotation is invalid.
        """
        own, qos = _annotated(pod), raw_qos(pod)
        if own is not None and qos is QoS.LS:
            if not own.enable:
                return 0
            if own.group_identity is not None:
                return own.group_identity
        found = self.of_class(qos)
        return self.of_kube(kubernetes_qos(pod)) if found is None else found


def _classes(strategy: ResourceQos | None) -> list[tuple[QoS, CpuQos | None]]:
    classes: list[tuple[QoS, QosClass | None]] = [
        (QoS.LSR, strategy.lsr_class if strategy else None),
        (QoS.LS, strategy.ls_class if strategy else None),
        (QoS.BE, strategy.be_class if strategy else None),
    ]
    return [(qos, qos_class.cpu_qos if qos_class else None) for qos, qos_class in classes]


def _annotated(pod: Pod) -> CpuQos | None:
    text = (pod.metadata.annotations or {}).get(ANNOTATION)
    if text is None:
        return None
    try:
        found: CpuQos = read_json(text, CpuQos)
    except msgspec.MsgspecError as error:
        raise BadCpuQos(pod.metadata.key, str(error)) from error
    return found
