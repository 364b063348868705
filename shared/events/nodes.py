"""Events of the `nodes-*` contexts: actions that node agents took on their own decision, and evictions that they
request.

Each names the agent's run (`boot`) and the action's `number` in it, so that a repeated report counts once; `at_ns` is
the instant of the action, by the node's clock.
"""

from typing import ClassVar

import msgspec

from shared.events.base import Event


class BestEffortSuppressed(Event, frozen=True, tag="koord.nodes.BestEffortSuppressed.v1"):
    """The cpu share of a node's best-effort pods changed.

    Attributes:
        policy: `cpuset`: by the cpus they may run on; `cfsQuota`: by a quota.
        cpu_milli: milli-cores that they may use; None: all.
        cpus: the cpus, such as `0-3,8`, for the policy `cpuset`.
    """

    KEY: ClassVar[str] = "node"

    node: str
    boot: str
    number: int
    at_ns: int
    policy: str
    cpu_milli: int | None = None
    cpus: str = ""


class PodBurst(Event, frozen=True, tag="koord.nodes.PodBurst.v1"):
    """A container's cpu limit was stretched, or brought back.

    Attributes:
        pod: `namespace/name`; empty when `cluster` had not shown the pod yet, or no longer.
        container: the runtime's id; empty for the pod as a whole.
        cfs_quota_us: microseconds of cpu in each period of 100 ms from now on; None: unchanged.
        cfs_burst_us: microseconds that may be saved up; None: unchanged.
    """

    KEY: ClassVar[str] = "node"

    node: str
    boot: str
    number: int
    at_ns: int
    pod_uid: str
    pod: str = ""
    container: str = ""
    cfs_quota_us: int | None = None
    cfs_burst_us: int | None = None


class AgentEvictionRequested(Event, frozen=True, tag="koord.nodes.AgentEvictionRequested.v1"):
    """A node's agent requests the eviction of a pod. EvictionRequested follows it, which is the intent."""

    KEY: ClassVar[str] = "node"

    node: str
    boot: str
    number: int
    at_ns: int
    pod_uid: str
    pod: str
    reason: str


class NodeTopologyReported(Event, frozen=True, tag="koord.nodes.NodeTopologyReported.v1"):
    """A node's hardware and its CPU assignments, as its agent sees them. The SLO controller writes the
    NodeResourceTopology from it.

    Attributes:
        annotations: name -> JSON, as they are written.
        policy: of the kubelet's topology manager, such as `SingleNUMANodePodLevel`.
        zones: name of a NUMA zone -> resource -> (capacity, allocatable), as quantities.
        numa_reservation: the node's label `node.koordinator.sh/enable-numa-reservation`; empty without it.
    """

    KEY: ClassVar[str] = "node"

    node: str
    boot: str
    number: int
    at_ns: int
    annotations: dict[str, str]
    policy: str
    zones: dict[str, dict[str, tuple[str, str]]]
    numa_reservation: str = ""


class HookedContainer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records whether the runtime hooks of one container were in force when its program started.

    Attributes:
        container_id: the runtime's.
        pod: `namespace/name`: of the pod of this uid in `cluster`, or as the node reports it when `cluster` had not
            shown the pod yet, or no longer.
        state: `applied`: it started with all values; `repaired`: it ran without some of them for `after_ms`;
            `notApplied`: it has run without those of `failed` so far, or to its end.
        at_ns: its creation, or the instant at which the agent found it; by the node's clock.
        route: `nri`, `proxy`, `reconciler`, or empty: its values were found in place, or never set.
        hooks: names of those in force. failed: name -> reason.
        after_ms: milliseconds from the start of its program, for `repaired`; None where the start is not known.
    """

    container_id: str
    pod_uid: str
    pod: str
    container: str
    state: str
    at_ns: int
    route: str = ""
    hooks: tuple[str, ...] = ()
    failed: dict[str, str] = msgspec.field(default_factory=dict)
    after_ms: int | None = None


class ContainerHooksReported(Event, frozen=True, tag="koord.nodes.ContainerHooksReported.v1"):
    """Records whether containers of a node started with the values of their hooks, if that is new or has changed.

    The newest record of a container is in force. An agent repeats the records of all its containers when it starts, and
    once a day.
    """

    KEY: ClassVar[str] = "node"

    node: str
    boot: str
    number: int
    at_ns: int
    containers: tuple[HookedContainer, ...]


class DeviatingSignal(msgspec.Struct, frozen=True):
    """A signal of a pod above the limit of its baseline, in the signal's unit (docs/interference.md).

    Attributes:
        value: mean of the samples above the limit. baseline: the usual value.
    """

    signal: str
    value: float
    baseline: float
    limit: float


class InterferenceSuspect(msgspec.Struct, frozen=True, omit_defaults=True):
    """A best-effort pod of the node that may cause the deviation.

    Attributes:
        pod: `namespace/name`; empty when `cluster` had not shown the pod yet, or no longer.
        correlation_percent: of its activity with the signal, 1..100.
        value: its activity: milli-cores (cpu), bytes (memory), bytes a second (io, network).
    """

    pod_uid: str
    correlation_percent: int
    signal: str
    activity: str
    value: float
    pod: str = ""


class PodInterfered(Event, frozen=True, tag="koord.nodes.PodInterfered.v1"):
    """A pod is slowed down by best-effort neighbours, until PodInterferenceEnded.

    Attributes:
        pod: `namespace/name`; empty when `cluster` had not shown the pod yet, or no longer.
        since_ns: the first sample above a limit, by the node's clock.
        suspects: the most correlated first.
        answer: `none`, `suppress`, `migrate` or `hint`.
        done: what was done for it; empty: nothing.
        job: name of the PodMigrationJob that was requested; empty: none.
    """

    KEY: ClassVar[str] = "node"

    node: str
    boot: str
    number: int
    at_ns: int
    pod_uid: str
    since_ns: int
    deviations: tuple[DeviatingSignal, ...]
    suspects: tuple[InterferenceSuspect, ...]
    answer: str = "none"
    done: str = ""
    job: str = ""
    pod: str = ""


class PodInterferenceEnded(Event, frozen=True, tag="koord.nodes.PodInterferenceEnded.v1"):
    """A pod is no longer slowed down by neighbours.

    Attributes:
        pod: `namespace/name`; empty when `cluster` had not shown the pod yet, or no longer.
        reason: `recovered`, `gone`, or `disabled`.
    """

    KEY: ClassVar[str] = "node"

    node: str
    boot: str
    number: int
    at_ns: int
    pod_uid: str
    reason: str
    pod: str = ""


class NodeTopologyRemoved(Event, frozen=True, tag="koord.nodes.NodeTopologyRemoved.v1"):
    """A node is gone from the cluster, and the topology that its agent reported no longer holds."""

    KEY: ClassVar[str] = "node"

    node: str


AGENT_ACTIONS: tuple[type[Event], ...] = (
    BestEffortSuppressed,
    PodBurst,
    AgentEvictionRequested,
    NodeTopologyReported,
    ContainerHooksReported,
    PodInterfered,
    PodInterferenceEnded,
)
"""Types that record actions of agents, and their reports."""
