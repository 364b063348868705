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

_T = TypeVar("_T", bound=msgspec.Struct)

THRESHOLD = ResourceThreshold(
    enable=False,
    cpu_suppress_threshold_percent=65,
    cpu_suppress_policy="cpuset",
    memory_evict_threshold_percent=70,
    cpu_evict_policy="evictByRealLimit",
)
BURST = CpuBurst(
    policy="none",
    cpu_burst_percent=1000,
    cfs_quota_burst_percent=300,
    cfs_quota_burst_period_seconds=-1,
    share_pool_threshold_percent=50,
)
_NO_CPU = CpuQos(enable=False, group_identity=0, sched_idle=0, core_expeller=False)
_NO_RESCTRL = ResctrlQos(enable=False, cat_range_start_percent=0, cat_range_end_percent=100, mba_percent=100)
_CPU = {
    QoS.LSR: CpuQos(enable=False, group_identity=2, sched_idle=0, core_expeller=True),
    QoS.LS: CpuQos(enable=False, group_identity=2, sched_idle=0, core_expeller=True),
    QoS.BE: CpuQos(enable=False, group_identity=-1, sched_idle=0, core_expeller=False),
    QoS.SYSTEM: _NO_CPU,
}
_RESCTRL = {
    QoS.LSR: _NO_RESCTRL,
    QoS.LS: _NO_RESCTRL,
    QoS.BE: msgspec.structs.replace(_NO_RESCTRL, cat_range_end_percent=30),
    QoS.SYSTEM: _NO_RESCTRL,
}


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
