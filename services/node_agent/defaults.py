"""A NodeSLO with the defaults of what it leaves out. Source: spec/node-agent.md 0.5."""

from typing import Any, TypeVar

import msgspec

from services.node_agent.qos.memory_qos import AUTO, NONE
from services.node_agent.slo_spec import (
    CpuBurst,
    CpuQos,
    MemoryQos,
    NodeSloSpec,
    QosClass,
    ResctrlQos,
    ResourceQos,
    ResourceThreshold,
)
from shared.domain.qos import QoS
from shared.domain.slo_defaults import DEFAULT_BURST, DEFAULT_QOS, DEFAULT_THRESHOLD, OFF_CPU, OFF_RESCTRL
from shared.kube.slo_config import Part

_T = TypeVar("_T", bound=msgspec.Struct)


def _own(kind: type[_T], part: Part) -> _T:
    """A section of the shared defaults as this agent reads it."""
    return msgspec.convert(msgspec.to_builtins(part), kind)


THRESHOLD = _own(ResourceThreshold, DEFAULT_THRESHOLD)
BURST = _own(CpuBurst, DEFAULT_BURST)
_NO_CPU = _own(CpuQos, OFF_CPU)
_NO_RESCTRL = _own(ResctrlQos, OFF_RESCTRL)
_CLASSES = {
    QoS.LSR: DEFAULT_QOS.lsr_class,
    QoS.LS: DEFAULT_QOS.ls_class,
    QoS.BE: DEFAULT_QOS.be_class,
    QoS.SYSTEM: DEFAULT_QOS.system_class,
}
_CPU = {qos: _own(CpuQos, of.cpu_qos) for qos, of in _CLASSES.items() if of and of.cpu_qos}
_RESCTRL = {qos: _own(ResctrlQos, of.resctrl_qos) for qos, of in _CLASSES.items() if of and of.resctrl_qos}


def merged(spec: NodeSloSpec | None) -> NodeSloSpec:
    """The whole: what is absent is the default; a class that is not enabled gets what isolates nothing."""
    stated = spec or NodeSloSpec()
    qos = stated.resource_qos_strategy or ResourceQos()
    return msgspec.structs.replace(
        stated,
        resource_used_threshold_with_be=_over(THRESHOLD, stated.resource_used_threshold_with_be),
        cpu_burst_strategy=_over(BURST, stated.cpu_burst_strategy),
        resource_qos_strategy=msgspec.structs.replace(
            qos,
            lsr_class=_class(QoS.LSR, qos.lsr_class),
            ls_class=_class(QoS.LS, qos.ls_class),
            be_class=_class(QoS.BE, qos.be_class),
            system_class=_class(QoS.SYSTEM, qos.system_class),
        ),
    )


def _class(qos: QoS, stated: QosClass | None) -> QosClass:
    own = stated or QosClass()
    cpu = _over(_CPU[qos], own.cpu_qos)
    memory = _over(AUTO[qos], own.memory_qos)
    resctrl = _over(_RESCTRL[qos], own.resctrl_qos)
    if qos is not QoS.SYSTEM:
        cpu = cpu if cpu.enable else _NO_CPU
        memory = memory if memory.enable else _off(memory)
        resctrl = resctrl if resctrl.enable else _NO_RESCTRL
    return msgspec.structs.replace(own, cpu_qos=cpu, memory_qos=memory, resctrl_qos=resctrl)


def _off(memory: MemoryQos) -> MemoryQos:
    return msgspec.structs.replace(NONE, enable=memory.enable)


def _over(default: _T, stated: _T | None) -> _T:
    """The default, with each field that is stated."""
    if stated is None:
        return default
    fields: dict[str, Any] = {
        name: value
        for name in default.__struct_fields__
        if (value := getattr(stated, name)) is not None and value != ""
    }
    return msgspec.structs.replace(default, **fields)
