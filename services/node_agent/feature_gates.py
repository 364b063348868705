"""Feature gates with upstream's names and defaults, and FPGADevices, which is ours. Source: spec/node-agent.md 0.3."""

from collections.abc import Mapping

from shared.errors import KoordError

DEFAULTS: Mapping[str, bool] = {
    "BECPUSuppress": True,
    "BECPUManager": False,
    "BECPUEvict": False,
    "CPUEvict": False,
    "CPUAllocatableEvict": False,
    "BEMemoryEvict": False,
    "MemoryEvict": False,
    "MemoryAllocatableEvict": False,
    "CPUBurst": True,
    "RdtResctrl": True,
    "NodeTopologyReport": True,
    "HugePageReport": False,
    "SystemConfig": False,
    "CgroupReconcile": False,
    "BlkIOReconcile": False,
    "GroupIdentity": True,
    "CPUSetAllocator": True,
    "BatchResource": True,
    "CPUNormalization": False,
    "CoreSched": False,
    "OOMScoreAdj": False,
    "PSICollector": False,
    "PerCPUMetric": False,
    "CPICollector": False,
    "ColdPageCollector": False,
    "ResctrlCollector": False,
    "Accelerators": False,
    "RDMADevices": False,
    "FPGADevices": False,
    "TerwayQoS": False,
    "TCNetworkQoS": False,
    "Resctrl": False,
    "GPUEnvInject": False,
    "RDMADeviceInject": False,
    "HamiCoreVGPUMonitor": False,
    "PodResourcesProxy": False,
    "NodeMetricPromMetrics": False,
    "AuditEvents": False,
    "AuditEventsHTTPHandler": False,
}
"""The gates of this agent with their defaults."""


REFUSED: Mapping[str, str] = {
    "Libpfm4": "is not needed: cycles and instructions are counted through perf_event_open without libpfm4; leave it out",
}
"""Gates of koordlet that this agent does not have -> the reason."""


class BadFeatures(KoordError):
    """A list of gates that is invalid."""

    def __init__(self, found: str, reason: str) -> None:
        super().__init__(
            f"KOORD_NODE_AGENT_FEATURES: {found!r} {reason}; give NAME=true or NAME=false, separated by commas"
        )


def parse(text: str) -> dict[str, bool]:
    """Returns all gates, with the values of `text` for some: `CPUEvict=true,CPUBurst=false`.

    Raises:
        BadFeatures: it names an unknown gate, or a value other than true and false.
    """
    gates = dict(DEFAULTS)
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name in REFUSED:
            raise BadFeatures(part, REFUSED[name])
        if name not in gates:
            raise BadFeatures(part, f"is none of {', '.join(sorted(gates))}")
        if value not in {"true", "false"}:
            raise BadFeatures(part, "is neither true nor false")
        gates[name] = value == "true"
    return gates
