"""Actions of a node agent: what it did on its node by its own decision, and what it requests.

Ingest appends them to `nodes-*`.
"""

from typing import Annotated, ClassVar, Literal, get_args

import msgspec
from msgspec import Meta

from shared.agents.decoding import BadMessage, decoded
from shared.agents.report import MAX_ZONES, Instant, Name, Uid

Text = Annotated[str, Meta(max_length=1024)]
Reason = Annotated[str, Meta(max_length=256)]
Note = Annotated[str, Meta(max_length=262_144)]
Quantity = Annotated[str, Meta(max_length=64)]


class Action(msgspec.Struct, frozen=True, tag_field="action"):
    """Base of all actions."""


class Suppressed(Action, frozen=True, tag="suppressed"):
    """Changes the share of the cpu that best-effort pods may use.

    Attributes:
        policy: by the cpus they may run on, or by a quota.
        cpu_milli: milli-cores that they may use; None: no limit.
        cpus: the cpus in kernel syntax, such as `0-3,8`, for the policy `cpuset`.
    """

    policy: Literal["cpuset", "cfsQuota"]
    cpu_milli: Annotated[int, Meta(ge=0)] | None = None
    cpus: Text = ""


class Burst(Action, frozen=True, tag="burst"):
    """Raises a container's cpu limit for a while, or brings it back.

    Attributes:
        container: the runtime's id; empty for the pod as a whole.
        cfs_quota_us: microseconds of cpu in each period of 100 ms from now on; None: unchanged.
        cfs_burst_us: microseconds that may be saved up; None: unchanged.
    """

    pod_uid: Uid
    container: Text = ""
    cfs_quota_us: int | None = None
    cfs_burst_us: Annotated[int, Meta(ge=0)] | None = None


class EvictionRequested(Action, frozen=True, tag="evictionRequested"):
    """Requests the eviction of a pod, which the gateway carries out."""

    pod_uid: Uid
    reason: Annotated[str, Meta(min_length=1, max_length=1024)]


class ZoneReported(msgspec.Struct, frozen=True):
    """A NUMA zone of the node.

    Attributes:
        name: `node-0`, `node-1` and so on.
        resources: name -> (capacity, allocatable), as quantities.
    """

    name: Name
    resources: Annotated[dict[Name, tuple[Quantity, Quantity]], Meta(max_length=64)]


class TopologyReported(Action, frozen=True, tag="topologyReported"):
    """The complete content for the node's NodeResourceTopology, reported on each change and repeated at intervals.

    Attributes:
        annotations: those of `node_resource_topology.REPORTED_ANNOTATIONS`; JSON.
        policy: of the kubelet's topology manager.
        zones: by number.
        numa_reservation: the node's label of that name, copied.
    """

    annotations: Annotated[dict[Name, Note], Meta(max_length=16)]
    policy: Annotated[str, Meta(max_length=63)]
    zones: Annotated[tuple[ZoneReported, ...], Meta(max_length=MAX_ZONES)]
    numa_reservation: Annotated[str, Meta(max_length=63)] = ""


MAX_CONTAINERS = 128
"""Containers in one action at most; an agent with more sends several."""


Route = Literal["", "nri", "proxy", "reconciler"]


class ContainerHooks(msgspec.Struct, frozen=True):
    """Records whether the runtime hooks of one container were in force when its program started.

    Attributes:
        container_id: the runtime's.
        pod: `namespace/name`. pod_uid: as the pod's cgroup is named; both as the node has them.
        state: `applied`: it started with all values; `repaired`: it ran without some of them for `after_ms`;
            `notApplied`: it has run without those of `failed` so far, or to its end.
        route: the way by which the agent reached it: `nri`, `proxy` (a runtime proxy), `reconciler`, or empty: its
            values were found in place, or never set.
        hooks: names of those in force. failed: name -> reason.
        after_ms: milliseconds from the start of its program, for `repaired`; None where the start is not known.
        at_ns: its creation as the runtime announced it, or the instant at which the agent found it; nanoseconds since
            the epoch by the node's clock.
    """

    container_id: Uid
    pod_uid: Uid
    pod: Annotated[str, Meta(max_length=317)]
    container: Name
    state: Literal["applied", "repaired", "notApplied"]
    at_ns: Instant
    route: Route = ""
    hooks: Annotated[tuple[Name, ...], Meta(max_length=16)] = ()
    failed: Annotated[dict[Name, Reason], Meta(max_length=16)] = {}
    after_ms: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class HooksReported(Action, frozen=True, tag="hooksReported"):
    """Reports containers whose record is new or has changed; the records of all are repeated at times."""

    containers: Annotated[tuple[ContainerHooks, ...], Meta(min_length=1, max_length=MAX_CONTAINERS)]


SignalName = Literal[
    "cpi",
    "cpuPressure",
    "schedulingLatency",
    "memoryPressure",
    "refaults",
    "directReclaim",
    "ioPressure",
    "diskLatency",
    "retransmits",
    "drops",
]
SIGNAL_NAMES: tuple[str, ...] = get_args(SignalName)
"""Signals of a slowed pod."""
MAX_SUSPECTS = 5
"""Suspects in one action at most."""
Measure = Annotated[float, Meta(ge=0, le=1e18)]


class SignalDeviation(msgspec.Struct, frozen=True):
    """A signal of a pod that is above the limit of its baseline; values in the signal's unit.

    Attributes:
        value: mean of the samples above the limit. baseline: the usual value.
    """

    signal: SignalName
    value: Measure
    baseline: Measure
    limit: Measure


class SuspectedNeighbour(msgspec.Struct, frozen=True):
    """A best-effort pod of the node that may cause the deviation.

    Attributes:
        correlation_percent: of its activity with the signal.
        value: its activity: milli-cores (cpu), bytes (memory), bytes a second (io, network).
    """

    pod_uid: Uid
    correlation_percent: Annotated[int, Meta(ge=1, le=100)]
    signal: SignalName
    activity: Literal["cpu", "memory", "io", "network"]
    value: Measure


class Interfered(Action, frozen=True, tag="interfered"):
    """A pod is slowed down by best-effort neighbours.

    Attributes:
        since_ns: the first sample above a limit; nanoseconds since the epoch by the node's clock.
        suspects: the most correlated first.
        answer: what the strategy asks for. done: what the agent itself did; empty: nothing.
    """

    pod_uid: Uid
    since_ns: Instant
    deviations: Annotated[tuple[SignalDeviation, ...], Meta(min_length=1, max_length=len(SIGNAL_NAMES))]
    suspects: Annotated[tuple[SuspectedNeighbour, ...], Meta(min_length=1, max_length=MAX_SUSPECTS)]
    answer: Literal["none", "suppress", "migrate", "hint"] = "none"
    done: Annotated[str, Meta(max_length=256)] = ""


class InterferenceEnded(Action, frozen=True, tag="interferenceEnded"):
    """A pod is no longer slowed down by neighbours: it recovered, is gone, or the detection was switched off."""

    pod_uid: Uid
    reason: Literal["recovered", "gone", "disabled"]


class PodsRequested(Action, frozen=True, tag="podsRequested"):
    """Requests the pods of the node (shared/agents/node_pods.py), now and on each change. It leaves no event."""


AnyAction = (
    Suppressed
    | Burst
    | EvictionRequested
    | TopologyReported
    | HooksReported
    | Interfered
    | InterferenceEnded
    | PodsRequested
)


class ActionReport(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """One action of one node's agent. Its first place on the wire is the schema's version.

    Attributes:
        node, boot: as in a report.
        seq: number of the action in this run of the agent, from 1; a repeat has the same. Reports are numbered
            separately.
        at_ns: its time by the node's clock, nanoseconds since the epoch.
    """

    node: Name
    boot: Annotated[str, Meta(min_length=1, max_length=64)]
    seq: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    at_ns: Instant
    action: AnyAction


class BadAction(BadMessage):
    """An action that is rejected; the text names the node, the field and the reason."""

    what: ClassVar[str] = "action"


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ActionReport)


def encode(report: ActionReport) -> bytes:
    """Returns an action as a message."""
    return _encoder.encode(report)


def decode(data: bytes, node: str) -> ActionReport:
    """Returns a message as an action.

    Args:
        node: the node of the topic on which it came.

    Raises:
        BadAction: names the node, the field and the reason.
    """
    return decoded(_decoder, ActionReport, BadAction, data, node)
