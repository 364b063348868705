"""Defaults of a NodeSLO: the values of absent fields in each section, and of disabled parts.

Source: spec/slo-controller.md 7.1 (agent side), 8; upstream pkg/util/sloconfig/nodeslo_config.go,
pkg/koordlet/statesinformer/impl/states_nodeslo.go.
"""

import msgspec
from msgspec.structs import replace

from shared.domain.strategy_merge import merged
from shared.kube.slo_config import (
    BlkioQos,
    CpuBurst,
    CpuQos,
    HostApplication,
    InterferenceStrategy,
    MemoryQos,
    NetworkQos,
    Part,
    QosClass,
    QosPolicies,
    ResctrlQos,
    ResourceQos,
    ResourceThreshold,
    SystemStrategy,
)

DEFAULT_THRESHOLD = ResourceThreshold(
    enable=False,
    cpu_suppress_threshold_percent=65,
    cpu_suppress_policy="cpuset",
    memory_evict_threshold_percent=70,
    cpu_evict_policy="evictByRealLimit",
)
DEFAULT_BURST = CpuBurst(
    policy="none",
    cpu_burst_percent=1000,
    cfs_quota_burst_percent=300,
    cfs_quota_burst_period_seconds=-1,
    share_pool_threshold_percent=50,
)
DEFAULT_INTERFERENCE = InterferenceStrategy(
    enable=False,
    deviation_percent=100,
    standard_deviations=4,
    sustain_seconds=10,
    recovery_seconds=60,
    learn_seconds=300,
    half_life_seconds=86_400,
    min_correlation_percent=50,
    answer="none",
    suppress_percent=50,
)
DEFAULT_SYSTEM = SystemStrategy(total_network_bandwidth="0")

OFF_CPU = CpuQos(enable=False, group_identity=0, sched_idle=0, core_expeller=False)
OFF_MEMORY = MemoryQos(
    enable=False, min_limit_percent=0, low_limit_percent=0, throttling_percent=0, wmark_ratio=0, wmark_scale_permill=50,
    wmark_min_adj=0, priority_enable=0, priority=0, oom_kill_group=0,
)  # fmt: skip
OFF_RESCTRL = ResctrlQos(enable=False, cat_range_start_percent=0, cat_range_end_percent=100, mba_percent=100)
"""The values of disabled parts: nothing is protected, nothing is limited."""

_NETWORK = NetworkQos(enable=False, ingress_request=0, ingress_limit=0, egress_request=0, egress_limit=0)


def _class(identity: int, *, expels: bool, wmark: tuple[int, int, int], cat_end: int) -> QosClass:
    ratio, scale, least = wmark
    return QosClass(
        cpu_qos=replace(OFF_CPU, group_identity=identity, core_expeller=expels),
        memory_qos=replace(OFF_MEMORY, wmark_ratio=ratio, wmark_scale_permill=scale, wmark_min_adj=least),
        blkio_qos=BlkioQos(enable=False),
        resctrl_qos=replace(OFF_RESCTRL, cat_range_end_percent=cat_end),
        network_qos=_NETWORK,
    )


DEFAULT_QOS = ResourceQos(
    policies=QosPolicies(cpu_policy="groupIdentity", net_qos_policy="tc"),
    lsr_class=_class(2, expels=True, wmark=(95, 20, -25), cat_end=100),
    ls_class=_class(2, expels=True, wmark=(95, 20, -25), cat_end=100),
    be_class=_class(-1, expels=False, wmark=(95, 20, 50), cat_end=30),
    system_class=_class(0, expels=False, wmark=(0, 50, 0), cat_end=100),
    cgroup_root=QosClass(blkio_qos=BlkioQos(enable=False)),
)


class Extensions(Part, frozen=True):
    """The part of a NodeSLO's `extensions` that is this system's; other keys belong to other controllers."""

    interference: InterferenceStrategy | None = None


class NodeSloSpec(Part, frozen=True):
    """A NodeSLO's spec, received or merged with defaults."""

    resource_used_threshold_with_be: ResourceThreshold | None = msgspec.field(
        name="resourceUsedThresholdWithBE", default=None
    )
    resource_qos_strategy: ResourceQos | None = msgspec.field(name="resourceQOSStrategy", default=None)
    cpu_burst_strategy: CpuBurst | None = None
    system_strategy: SystemStrategy | None = None
    host_applications: tuple[HostApplication, ...] = ()
    extensions: Extensions | None = None

    @property
    def interference(self) -> InterferenceStrategy:
        """The strategy of interference detection; one without values where there is none."""
        found = self.extensions.interference if self.extensions is not None else None
        return found if found is not None else InterferenceStrategy()


def in_force(received: NodeSloSpec) -> NodeSloSpec:
    """Merges each section over its defaults; for LSR, LS and BE, a part that is not enabled is disabled."""
    qos = merged(DEFAULT_QOS, received.resource_qos_strategy or ResourceQos())
    classes = {name: _with_disabled_parts(getattr(qos, name)) for name in ("lsr_class", "ls_class", "be_class")}
    return NodeSloSpec(
        resource_used_threshold_with_be=merged(
            DEFAULT_THRESHOLD, received.resource_used_threshold_with_be or ResourceThreshold()
        ),
        resource_qos_strategy=replace(qos, **classes),
        cpu_burst_strategy=merged(DEFAULT_BURST, received.cpu_burst_strategy or CpuBurst()),
        system_strategy=merged(DEFAULT_SYSTEM, received.system_strategy or SystemStrategy()),
        host_applications=received.host_applications,
        extensions=Extensions(interference=merged(DEFAULT_INTERFERENCE, received.interference)),
    )


def _with_disabled_parts(qos_class: QosClass) -> QosClass:
    parts = {"cpu_qos": OFF_CPU, "memory_qos": OFF_MEMORY, "resctrl_qos": OFF_RESCTRL}
    return replace(qos_class, **{name: off for name, off in parts.items() if not getattr(qos_class, name).enable})
