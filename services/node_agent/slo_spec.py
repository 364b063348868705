"""A NodeSLO's `spec`, with the bounds of the CRD and of upstream's validators. What is unknown passes: the CRD may know more.

Field names are the object's own. Absent means the default, which the strategies merge in. Source: spec/api.md 1.3.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Percent = Annotated[int, Meta(ge=0, le=100)]
AtLeast0 = Annotated[int, Meta(ge=0)]
Switch = Annotated[int, Meta(ge=0, le=1)]
Bandwidth = Percent | str


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    pass


class ResourceThreshold(_Part, frozen=True):
    """When best-effort pods are held back or evicted."""

    enable: bool | None = None
    cpu_suppress_threshold_percent: Percent | None = None
    cpu_suppress_min_percent: Percent | None = None
    cpu_suppress_policy: Literal["cpuset", "cfsQuota", ""] = ""
    memory_evict_threshold_percent: Percent | None = None
    memory_evict_lower_percent: Percent | None = None
    memory_allocatable_evict_threshold_percent: AtLeast0 | None = None
    memory_allocatable_evict_lower_percent: AtLeast0 | None = None
    cpu_evict_be_satisfaction_lower_percent: Percent | None = msgspec.field(
        name="cpuEvictBESatisfactionLowerPercent", default=None
    )
    cpu_evict_be_satisfaction_upper_percent: Percent | None = msgspec.field(
        name="cpuEvictBESatisfactionUpperPercent", default=None
    )
    cpu_evict_be_usage_threshold_percent: Percent | None = msgspec.field(
        name="cpuEvictBEUsageThresholdPercent", default=None
    )
    cpu_evict_time_window_seconds: Annotated[int, Meta(gt=0)] | None = None
    cpu_evict_threshold_percent: Percent | None = None
    cpu_evict_lower_percent: Percent | None = None
    cpu_allocatable_evict_threshold_percent: AtLeast0 | None = None
    cpu_allocatable_evict_lower_percent: AtLeast0 | None = None
    cpu_evict_policy: Literal["evictByRealLimit", "evictByAllocatable", ""] = ""
    evict_enabled_priority_threshold: int | None = None
    allocatable_evict_priority_threshold: Annotated[int, Meta(ge=0, le=7999)] | None = None


class CpuQos(_Part, frozen=True):
    """CPU isolation of a class."""

    enable: bool | None = None
    group_identity: Annotated[int, Meta(ge=-1, le=2)] | None = None
    sched_idle: Switch | None = None
    core_expeller: bool | None = None


class MemoryQos(_Part, frozen=True):
    """Memory protection of a class."""

    enable: bool | None = None
    min_limit_percent: Percent | None = None
    low_limit_percent: Percent | None = None
    throttling_percent: Percent | None = None
    wmark_ratio: Percent | None = None
    wmark_scale_permill: Annotated[int, Meta(ge=1, le=1000)] | None = None
    wmark_min_adj: Annotated[int, Meta(ge=-25, le=50)] | None = None
    priority_enable: Switch | None = None
    priority: Annotated[int, Meta(ge=0, le=12)] | None = None
    oom_kill_group: Switch | None = None
    page_cache_enable: bool | None = None
    page_cache_reclaim_sync: bool | None = None
    page_cache_limit_percent: Percent | None = None
    page_cache_limit_size: AtLeast0 | None = None


class ResctrlQos(_Part, frozen=True):
    """Share of last-level cache and memory bandwidth of a class."""

    enable: bool | None = None
    cat_range_start_percent: Percent | None = msgspec.field(name="catRangeStartPercent", default=None)
    cat_range_end_percent: Percent | None = msgspec.field(name="catRangeEndPercent", default=None)
    mba_percent: Percent | None = None


class NetworkQos(_Part, frozen=True):
    """Network share of a class: percent of the node's bandwidth, or a quantity."""

    enable: bool | None = None
    ingress_request: Bandwidth | None = None
    ingress_limit: Bandwidth | None = None
    egress_request: Bandwidth | None = None
    egress_limit: Bandwidth | None = None


class QosClass(_Part, frozen=True):
    """What one QoS class gets."""

    cpu_qos: CpuQos | None = msgspec.field(name="cpuQOS", default=None)
    memory_qos: MemoryQos | None = msgspec.field(name="memoryQOS", default=None)
    resctrl_qos: ResctrlQos | None = msgspec.field(name="resctrlQOS", default=None)
    blkio_qos: dict[str, Any] | None = msgspec.field(name="blkioQOS", default=None)
    network_qos: NetworkQos | None = msgspec.field(name="networkQOS", default=None)


class QosPolicies(_Part, frozen=True):
    """By which kernel feature classes are kept apart."""

    cpu_policy: Literal["groupIdentity", "coreSched", ""] | None = None
    net_qos_policy: Literal["tc", "terway-qos", ""] | None = msgspec.field(name="netQOSPolicy", default=None)


class ResourceQos(_Part, frozen=True):
    """Isolation by QoS class."""

    policies: QosPolicies | None = None
    lsr_class: QosClass | None = None
    ls_class: QosClass | None = None
    be_class: QosClass | None = None
    system_class: QosClass | None = None
    cgroup_root: QosClass | None = None


class CpuBurst(_Part, frozen=True):
    """How far a container may go beyond its cpu limit for a while."""

    policy: Literal["none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto", ""] = ""
    cpu_burst_percent: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    cfs_quota_burst_percent: Annotated[int, Meta(ge=100)] | None = None
    cfs_quota_burst_period_seconds: Annotated[int, Meta(ge=-1)] | None = None
    share_pool_threshold_percent: Percent | None = None


class NodeSloSpec(_Part, frozen=True):
    """The whole; parts that no strategy of this agent reads stay as they came."""

    resource_used_threshold_with_be: ResourceThreshold | None = msgspec.field(
        name="resourceUsedThresholdWithBE", default=None
    )
    resource_qos_strategy: ResourceQos | None = msgspec.field(name="resourceQOSStrategy", default=None)
    cpu_burst_strategy: CpuBurst | None = None
    system_strategy: dict[str, Any] | None = None
    host_applications: tuple[dict[str, Any], ...] | None = None
    extensions: Any = None
