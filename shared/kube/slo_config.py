"""The documents of the ConfigMap slo-controller-config, and the parts of a NodeSLO that four of them contain.

Field names are the documents' own. A field is absent (None, or its empty default) where a document leaves it out, so
that documents can be merged. Bounds are not part of the types: `shared.admission.slo_config.document_validation` checks
them and reports the path of the violation.

Source: spec/slo-controller.md 2.1, 6.1, 6.2, 7.2; upstream apis/configuration/slo_controller_config.go,
apis/slo/v1alpha1/nodeslo_types.go.
"""

from typing import Any, ClassVar

import msgspec
from msgspec import field

from shared.kube.selectors import LabelSelector


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of documents that are merged field by field.

    Attributes:
        ALWAYS: fields that every document sets, with the value that they have where it leaves them out.
    """

    ALWAYS: ClassVar[dict[str, Any]] = {}


class AggregatePolicy(Part, frozen=True):
    """Windows of the percentiles in a report, as Go durations."""

    durations: tuple[str, ...] = ()


class Hysteresis(Part, frozen=True):
    """The change of an amount, in percent, from which on it is written; `resourceDiffThreshold` where a field is absent."""

    rise_percent: float | None = None
    fall_percent: float | None = None


class OvercommitLimits(Part, frozen=True):
    """This system's extension of a strategy, under the name `koordstream`; other controllers ignore it.

    Attributes:
        floor, cap: quantities of batch-cpu (in cores) and batch-memory, by `cpu` and `memory`. A node that is degraded
            has neither.
    """

    floor: dict[str, str] | None = None
    cap: dict[str, str] | None = None
    hysteresis: Hysteresis | None = None


class ColocationStrategy(Part, frozen=True):
    """The overcommitment of a node, and the collection of its metrics. Key `colocation-config`."""

    enable: bool | None = None
    metric_aggregate_duration_seconds: int | None = None
    metric_report_interval_seconds: int | None = None
    metric_aggregate_policy: AggregatePolicy | None = None
    metric_memory_collect_policy: str | None = None
    cpu_reclaim_threshold_percent: int | None = None
    cpu_calculate_policy: str | None = None
    memory_reclaim_threshold_percent: int | None = None
    memory_calculate_policy: str | None = None
    degrade_time_minutes: int | None = None
    update_time_threshold_seconds: int | None = None
    resource_diff_threshold: float | None = None
    mid_reclaim_mode: str | None = None
    mid_cpu_threshold_percent: int | None = field(name="midCPUThresholdPercent", default=None)
    mid_memory_threshold_percent: int | None = None
    mid_unallocated_percent: int | None = None
    mid_static_cpu_reserved_percent: int | None = field(name="midStaticCPUReservedPercent", default=None)
    mid_static_memory_reserved_percent: int | None = None
    batch_cpu_threshold_percent: int | None = field(name="batchCPUThresholdPercent", default=None)
    batch_memory_threshold_percent: int | None = None
    extensions: dict[str, Any] | None = None
    koordstream: OvercommitLimits | None = None


class NodeColocation(ColocationStrategy, frozen=True):
    """The strategy of the nodes that a selector selects."""

    name: str = ""
    node_selector: LabelSelector | None = None


class ColocationConfig(ColocationStrategy, frozen=True):
    """The document `colocation-config`."""

    node_configs: tuple[NodeColocation, ...] = ()


class RatioModel(Part, frozen=True):
    """The speed of a cpu model by hyper-threads and turbo; 1.0 is the slowest."""

    base_ratio: float | None = None
    hyper_thread_enabled_ratio: float | None = None
    turbo_enabled_ratio: float | None = None
    hyper_thread_turbo_enabled_ratio: float | None = None


class NormalizationStrategy(Part, frozen=True):
    """Key `cpu-normalization-config`."""

    enable: bool | None = None
    default_ratio: float | None = None
    ratio_model: dict[str, RatioModel] | None = None


class NodeNormalization(NormalizationStrategy, frozen=True):
    """The strategy of the nodes that a selector selects."""

    name: str = ""
    node_selector: LabelSelector | None = None


class NormalizationConfig(NormalizationStrategy, frozen=True):
    """The document `cpu-normalization-config`."""

    node_configs: tuple[NodeNormalization, ...] = ()


class AmplificationStrategy(Part, frozen=True):
    """Key `resource-amplification-config`."""

    enable: bool | None = None
    resource_amplification_ratio: dict[str, float] | None = None


class NodeAmplification(AmplificationStrategy, frozen=True):
    """The strategy of the nodes that a selector selects."""

    name: str = ""
    node_selector: LabelSelector | None = None


class AmplificationConfig(AmplificationStrategy, frozen=True):
    """The document `resource-amplification-config`."""

    node_configs: tuple[NodeAmplification, ...] = ()


class ResourceThreshold(Part, frozen=True):
    """Thresholds of the suppression and eviction of best-effort pods. Key `resource-threshold-config`."""

    enable: bool | None = None
    cpu_suppress_threshold_percent: int | None = None
    cpu_suppress_min_percent: int | None = None
    cpu_suppress_policy: str = ""
    memory_evict_threshold_percent: int | None = None
    memory_evict_lower_percent: int | None = None
    memory_allocatable_evict_threshold_percent: int | None = None
    memory_allocatable_evict_lower_percent: int | None = None
    cpu_evict_be_satisfaction_upper_percent: int | None = field(name="cpuEvictBESatisfactionUpperPercent", default=None)
    cpu_evict_be_satisfaction_lower_percent: int | None = field(name="cpuEvictBESatisfactionLowerPercent", default=None)
    cpu_evict_be_usage_threshold_percent: int | None = field(name="cpuEvictBEUsageThresholdPercent", default=None)
    cpu_evict_time_window_seconds: int | None = None
    cpu_evict_threshold_percent: int | None = None
    cpu_evict_lower_percent: int | None = None
    cpu_allocatable_evict_threshold_percent: int | None = None
    cpu_allocatable_evict_lower_percent: int | None = None
    cpu_evict_policy: str = ""
    evict_enabled_priority_threshold: int | None = None
    allocatable_evict_priority_threshold: int | None = None


class CpuQos(Part, frozen=True):
    """CPU isolation of a class."""

    enable: bool | None = None
    group_identity: int | None = None
    sched_idle: int | None = None
    core_expeller: bool | None = None


class MemoryQos(Part, frozen=True):
    """Memory protection of a class."""

    enable: bool | None = None
    min_limit_percent: int | None = None
    low_limit_percent: int | None = None
    throttling_percent: int | None = None
    wmark_ratio: int | None = None
    wmark_scale_permill: int | None = None
    wmark_min_adj: int | None = None
    priority_enable: int | None = None
    priority: int | None = None
    oom_kill_group: int | None = None
    page_cache_enable: bool | None = None
    page_cache_limit_percent: int | None = None
    page_cache_limit_size: int | None = None
    page_cache_reclaim_sync: bool | None = None


class IoCfg(Part, frozen=True):
    """Limits and weights of a block device."""

    read_iops: int | None = field(name="readIOPS", default=None)
    write_iops: int | None = field(name="writeIOPS", default=None)
    read_bps: int | None = field(name="readBPS", default=None)
    write_bps: int | None = field(name="writeBPS", default=None)
    io_weight_percent: int | None = None
    read_latency: int | None = None
    write_latency: int | None = None
    read_latency_percent: int | None = None
    write_latency_percent: int | None = None
    enable_user_model: bool | None = None
    model_read_bps: int | None = field(name="modelReadBPS", default=None)
    model_write_bps: int | None = field(name="modelWriteBPS", default=None)
    model_read_seq_iops: int | None = field(name="modelReadSeqIOPS", default=None)
    model_write_seq_iops: int | None = field(name="modelWriteSeqIOPS", default=None)
    model_read_rand_iops: int | None = field(name="modelReadRandIOPS", default=None)
    model_write_rand_iops: int | None = field(name="modelWriteRandIOPS", default=None)


class Block(Part, frozen=True):
    """A block device, volume group or pod volume, with its limits."""

    name: str = ""
    type: str = ""
    io_cfg: IoCfg | None = None


class BlkioQos(Part, frozen=True):
    """Block devices of a class."""

    enable: bool | None = None
    blocks: tuple[Block, ...] = ()


class ResctrlQos(Part, frozen=True):
    """Share of last-level cache and memory bandwidth of a class."""

    enable: bool | None = None
    cat_range_start_percent: int | None = None
    cat_range_end_percent: int | None = None
    mba_percent: int | None = None


class NetworkQos(Part, frozen=True):
    """Network share of a class: an integer is percent of the node's bandwidth, a text a quantity of bytes a second."""

    enable: bool | None = None
    ingress_request: int | str | None = None
    ingress_limit: int | str | None = None
    egress_request: int | str | None = None
    egress_limit: int | str | None = None


class QosClass(Part, frozen=True):
    """The QoS strategies of one QoS class."""

    cpu_qos: CpuQos | None = field(name="cpuQOS", default=None)
    memory_qos: MemoryQos | None = field(name="memoryQOS", default=None)
    blkio_qos: BlkioQos | None = field(name="blkioQOS", default=None)
    resctrl_qos: ResctrlQos | None = field(name="resctrlQOS", default=None)
    network_qos: NetworkQos | None = field(name="networkQOS", default=None)


class QosPolicies(Part, frozen=True):
    """The kernel features that isolate the classes."""

    cpu_policy: str | None = None
    net_qos_policy: str | None = field(name="netQOSPolicy", default=None)


class ResourceQos(Part, frozen=True):
    """Isolation by QoS class. Key `resource-qos-config`."""

    policies: QosPolicies | None = None
    lsr_class: QosClass | None = None
    ls_class: QosClass | None = None
    be_class: QosClass | None = None
    system_class: QosClass | None = None
    cgroup_root: QosClass | None = None


class CpuBurst(Part, frozen=True):
    """Bursts of a container above its cpu limit. Key `cpu-burst-config`."""

    policy: str = ""
    cpu_burst_percent: int | None = None
    cfs_quota_burst_percent: int | None = None
    cfs_quota_burst_period_seconds: int | None = None
    share_pool_threshold_percent: int | None = None


class InterferenceStrategy(Part, frozen=True):
    """Detection of pods that best-effort neighbours slow down. Key `interference-config`, this system's extension: in a
    NodeSLO it is `extensions.interference`.

    Attributes:
        deviation_percent, standard_deviations: a signal deviates above its baseline's mean by more than this percent of
            it, and by more than so many standard deviations.
        sustain_seconds: a pod is marked when a signal deviates for so long; recovery_seconds: the mark ends when none
            has deviated for so long.
        learn_seconds: seconds of samples before a baseline is used.
        half_life_seconds: a sample loses half of its weight.
        min_correlation_percent: of a neighbour's activity with the signal, for a suspect.
        answer: what is done: `none`, `suppress`, `migrate` or `hint`.
        suppress_percent: of the thresholds of suppression that are left while a pod is marked, for `suppress`.
    """

    enable: bool | None = None
    deviation_percent: int | None = None
    standard_deviations: int | None = None
    sustain_seconds: int | None = None
    recovery_seconds: int | None = None
    learn_seconds: int | None = None
    half_life_seconds: int | None = None
    min_correlation_percent: int | None = None
    answer: str = ""
    suppress_percent: int | None = None


class SystemStrategy(Part, frozen=True):
    """Kernel settings of the node. Key `system-config`."""

    ALWAYS: ClassVar[dict[str, Any]] = {"total_network_bandwidth": "0"}

    min_free_kbytes_factor: int | None = None
    watermark_scale_factor: int | None = None
    memcg_reap_back_ground: int | None = None
    sched_group_identity_enabled: int | None = None
    sched_idle_saver_wmark: int | None = None
    sched_features: dict[str, bool] | None = None
    page_cache_limit_enabled: int | None = None
    total_network_bandwidth: str | int | float | None = None


class CgroupPath(Part, frozen=True):
    """The cgroup of a host application."""

    base: str = ""
    parent_dir: str = ""
    relative_path: str = ""


class HostApplication(Part, frozen=True):
    """A process outside of pods, with its priority and QoS class."""

    name: str = ""
    priority: str = ""
    qos: str = ""
    cgroup_path: CgroupPath | None = None
    strategy: dict[str, Any] | None = None


class NodeThreshold(ResourceThreshold, frozen=True):
    """The strategy of the nodes that a selector selects."""

    name: str = ""
    node_selector: LabelSelector | None = None


class NodeQos(ResourceQos, frozen=True):
    """The strategy of the nodes that a selector selects."""

    name: str = ""
    node_selector: LabelSelector | None = None


class NodeBurst(CpuBurst, frozen=True):
    """The strategy of the nodes that a selector selects."""

    name: str = ""
    node_selector: LabelSelector | None = None


class NodeSystem(SystemStrategy, frozen=True):
    """The strategy of the nodes that a selector selects."""

    name: str = ""
    node_selector: LabelSelector | None = None


class NodeInterference(InterferenceStrategy, frozen=True):
    """The strategy of the nodes that a selector selects."""

    name: str = ""
    node_selector: LabelSelector | None = None


class ThresholdConfig(Part, frozen=True):
    """The document `resource-threshold-config`."""

    cluster_strategy: ResourceThreshold | None = None
    node_strategies: tuple[NodeThreshold, ...] = ()


class QosConfig(Part, frozen=True):
    """The document `resource-qos-config`."""

    cluster_strategy: ResourceQos | None = None
    node_strategies: tuple[NodeQos, ...] = ()


class BurstConfig(Part, frozen=True):
    """The document `cpu-burst-config`."""

    cluster_strategy: CpuBurst | None = None
    node_strategies: tuple[NodeBurst, ...] = ()


class SystemConfig(Part, frozen=True):
    """The document `system-config`."""

    cluster_strategy: SystemStrategy | None = None
    node_strategies: tuple[NodeSystem, ...] = ()


class InterferenceConfig(Part, frozen=True):
    """The document `interference-config`."""

    cluster_strategy: InterferenceStrategy | None = None
    node_strategies: tuple[NodeInterference, ...] = ()


class NodeHostApplications(Part, frozen=True):
    """The applications of the nodes that a selector selects; they replace those of the cluster."""

    name: str = ""
    node_selector: LabelSelector | None = None
    applications: tuple[HostApplication, ...] = ()


class HostApplicationConfig(Part, frozen=True):
    """The document `host-application-config`."""

    applications: tuple[HostApplication, ...] = ()
    node_configs: tuple[NodeHostApplications, ...] = ()
