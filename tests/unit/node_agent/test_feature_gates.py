"""Gates have koordlet's names: each is known, or refused with its own reason."""

import pytest

from services.node_agent import feature_gates
from services.node_agent.feature_gates import DEFAULTS, REFUSED, BadFeatures

KOORDLET = """
AuditEvents AuditEventsHTTPHandler BECPUSuppress BECPUManager BECPUEvict CPUEvict CPUAllocatableEvict BEMemoryEvict
MemoryEvict MemoryAllocatableEvict CPUBurst SystemConfig RdtResctrl CgroupReconcile NodeTopologyReport Accelerators
RDMADevices CPICollector Libpfm4 PSICollector BlkIOReconcile ColdPageCollector HugePageReport PodResourcesProxy
HamiCoreVGPUMonitor PerCPUMetric NodeMetricPromMetrics ResctrlCollector GroupIdentity CPUSetAllocator BatchResource
GPUEnvInject RDMADeviceInject CPUNormalization CoreSched TerwayQoS TCNetworkQoS Resctrl OOMScoreAdj
"""
"""Those of spec/api.md 5.8."""
ON = {
    "BECPUSuppress",
    "CPUBurst",
    "RdtResctrl",
    "NodeTopologyReport",
    "GroupIdentity",
    "CPUSetAllocator",
    "BatchResource",
}


@pytest.mark.parametrize("name", KOORDLET.split())
def test_each_gate_of_koordlet_has_its_default_or_a_reason(name: str) -> None:
    if name not in REFUSED:
        assert DEFAULTS[name] == (name in ON)
        assert feature_gates.parse(f"{name}=true")[name]
        return
    with pytest.raises(BadFeatures, match="leave it out"):
        feature_gates.parse(f"{name}=true")


def test_an_unknown_gate_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadFeatures, match="'CPUBurts=true' is none of Accelerators, "):
        feature_gates.parse("CPUBurts=true")
