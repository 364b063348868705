"""Events of the `slo` context: the overcommitted amounts of each node, with their terms.

The desired state of API objects follows each of them as an intent (FieldsDesired, ObjectDesired).
"""

from typing import ClassVar

import msgspec

from shared.events.base import Event


class OvercommitBreakdown(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The terms from a capacity to the overcommitted amount: milli-cores, or bytes.

    left = max( capacity - margin - max(system, reserved) - pods - unreported, 0 ), for the policy
    `request` without `system`;
    amount = max( amplify( min(max( min(left, limit), floor ), cap) ) - third_parties, 0 ); the floor is at most
    capacity - reserved.

    Attributes:
        margin: protected by the reclaim percentage; negative beyond 100 %.
        system: used outside of pods, with host applications above batch.
        reserved: by the kubelet or the node's annotation.
        pods: of pods above batch, by the policy: their usage, their requests, or the larger of both.
        policy: usage, request or maxUsageRequest.
        limit, floor, cap: None: there is none.
        amplified: after the cpu normalization ratio.
        unreported: requested by pods above batch that came after the report, beyond the margin.
    """

    capacity: int
    margin: int
    system: int
    reserved: int
    pods: int
    policy: str
    left: int
    amplified: int
    amount: int
    limit: int | None = None
    floor: int | None = None
    cap: int | None = None
    third_parties: int = 0
    unreported: int = 0


class MidTerms(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """amount = min( base + unallocated, limit ), or the static share: milli-cores, or bytes.

    Attributes:
        base: predicted to be reclaimable from prod pods, and not used.
        unallocated: a share of the capacity that prod pods have not requested.
    """

    base: int
    unallocated: int
    limit: int
    amount: int


class NodeOvercommitted(Event, frozen=True, tag="koord.slo.NodeOvercommitted.v1"):
    """The batch and mid resources of a node from here on.

    Recorded when an amount appeared, disappeared, or changed by more than the threshold.

    Attributes:
        report_ns: the instant that the report is about; 0: there is none.
        decided_ns: the instant of the decision.
        why: `first`, `changed`, `time` (any difference, after updateTimeThresholdSeconds), `degraded` (its reports
            stopped: what its pods request), `off`, or
            `gone`: the node was deleted.
        source: of the report, `metrics` or `NodeMetric`; empty without one.
        ratio: the cpu normalization ratio as in the annotation; empty when it is unknown.
        batch_cpu, batch_memory, mid_cpu, mid_memory: the terms; None where the resource is removed.
        amounts: resource -> quantity of capacity and allocatable; None: removed.
        annotations, labels: of the node; None: removed.
        problems: inputs that could not be read; the rest was decided without them.
        failed: plugin -> the stage in which it met one of them.
    """

    KEY: ClassVar[str] = "node"

    node: str
    report_ns: int
    decided_ns: int
    why: str
    source: str = ""
    ratio: str = ""
    batch_cpu: OvercommitBreakdown | None = None
    batch_memory: OvercommitBreakdown | None = None
    mid_cpu: MidTerms | None = None
    mid_memory: MidTerms | None = None
    amounts: dict[str, str | None] = msgspec.field(default_factory=dict)
    annotations: dict[str, str | None] = msgspec.field(default_factory=dict)
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)
    problems: tuple[str, ...] = ()
    failed: dict[str, str] = msgspec.field(default_factory=dict)


class OvercommitmentFrozen(Event, frozen=True, tag="koord.slo.OvercommitmentFrozen.v1"):
    """Many nodes are silent at once: a fault of this system, not of the nodes. Their amounts stay, and none rises.

    Attributes:
        silent: overcommitted nodes without a recent report.
        nodes: overcommitted nodes.
    """

    KEY: ClassVar[str] = "nodes"

    silent: int
    nodes: int


class OvercommitmentResumed(Event, frozen=True, tag="koord.slo.OvercommitmentResumed.v1"):
    """Enough nodes report again; each node that does not is decided by the age of its own report."""

    KEY: ClassVar[str] = "nodes"

    silent: int
    nodes: int


class IgnoredReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A reason for which the newest report of one source about a node is ignored.

    Attributes:
        source: `metrics` or `NodeMetric`.
        kind: the same for reports that differ in their amounts alone, as `cpu is negative`.
        what: for people, with the amounts of the report at which this began.
    """

    source: str
    kind: str
    what: str


class NodeReportsIgnored(Event, frozen=True, tag="koord.slo.NodeReportsIgnored.v1"):
    """Usage reports about a node cannot be true, and count as expired. Recorded when a reason begins or ends, not for
    each report.

    Attributes:
        faults: all reasons that hold from here on.
        since_ns: the instant at which the first report of this episode was ignored.
    """

    KEY: ClassVar[str] = "node"

    node: str
    faults: tuple[IgnoredReport, ...]
    since_ns: int


class NodeReportsBelieved(Event, frozen=True, tag="koord.slo.NodeReportsBelieved.v1"):
    """No report about the node is ignored any more: a plausible one arrived, or there is none, or the node is gone."""

    KEY: ClassVar[str] = "node"

    node: str
    since_ns: int


class RecommendationUpdated(Event, frozen=True, tag="koord.slo.RecommendationUpdated.v1"):
    """The recommended requests for the containers of a workload, by the usage of its pods.

    Attributes:
        name: `namespace/name` of the Recommendation.
        since_ns: the first sample; 0: there was none.
        containers: container -> cpu and memory, as quantities.
        conditions: those that hold: LowConfidence, NoObjectsMatched or ConfigUnsupported.
        models: container -> its histograms as JSON, from which the next writer continues.
    """

    KEY: ClassVar[str] = "name"

    name: str
    decided_ns: int
    since_ns: int = 0
    containers: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    models: dict[str, str] = msgspec.field(default_factory=dict)


class RecommendationEnded(Event, frozen=True, tag="koord.slo.RecommendationEnded.v1"):
    """A Recommendation was deleted, and its histograms are dropped."""

    KEY: ClassVar[str] = "name"

    name: str
