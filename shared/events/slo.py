"""Events of the `slo` context: how much of each node is sold again, and by which terms.

What the API must say follows each of them as an intent (FieldsDesired, ObjectDesired).
"""

from typing import ClassVar

import msgspec

from shared.events.base import Event


class Waterfall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """From a capacity to what is sold: milli-cores, or bytes.

    left = max( capacity - margin - max(system, reserved) - pods, 0 ), by the policy `request` without the system's part;
    amount = max( amplify( min(max( min(left, limit), floor ), cap) ) - third_parties, 0 ).

    Attributes:
        margin: protected by the reclaim percentage; negative beyond 100 %.
        system: used outside of pods, with host applications above batch.
        reserved: kept back by the kubelet or the node's annotation.
        pods: of pods above batch, what the policy looks at: used, asked for, or the larger of both.
        policy: usage, request or maxUsageRequest.
        limit, floor, cap: None: there is none.
        amplified: after the cpu normalization ratio.
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


class MidTerms(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """amount = min( base + unallocated, limit ), or the static share: milli-cores, or bytes.

    Attributes:
        base: predicted to be reclaimable from prod pods, and not used.
        unallocated: the share of what prod pods have not asked for.
    """

    base: int
    unallocated: int
    limit: int
    amount: int


class NodeOvercommitted(Event, frozen=True, tag="koord.slo.NodeOvercommitted.v1"):
    """What a node sells again, from here on. Said when an amount appeared, went, or moved by more than the threshold.

    Attributes:
        report_ns: the instant that the report is about; 0: there is none.
        decided_ns: when this was decided.
        why: `first`, `moved`, `time` (any difference, after updateTimeThresholdSeconds), `degraded`, `off`, or
            `gone`: the node is there no longer.
        source: `metrics` or `NodeMetric`: whose report it was; empty without one.
        ratio: the cpu normalization ratio, as the annotation has it; empty when it cannot be told.
        batch_cpu, batch_memory, mid_cpu, mid_memory: how it came about; None where the resource is taken away.
        amounts: resource -> quantity of capacity and allocatable; None: gone.
        annotations, labels: of the node; None: gone.
        problems: what could not be read or told; the rest was decided without it.
        failed: plugin -> the stage in which it met one of them.
    """

    KEY: ClassVar[str] = "node"

    node: str
    report_ns: int
    decided_ns: int
    why: str
    source: str = ""
    ratio: str = ""
    batch_cpu: Waterfall | None = None
    batch_memory: Waterfall | None = None
    mid_cpu: MidTerms | None = None
    mid_memory: MidTerms | None = None
    amounts: dict[str, str | None] = msgspec.field(default_factory=dict)
    annotations: dict[str, str | None] = msgspec.field(default_factory=dict)
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)
    problems: tuple[str, ...] = ()
    failed: dict[str, str] = msgspec.field(default_factory=dict)


class RecommendationUpdated(Event, frozen=True, tag="koord.slo.RecommendationUpdated.v1"):
    """What the containers of a workload should ask for, by what its pods have used.

    Attributes:
        name: `namespace/name` of the Recommendation.
        since_ns: the first sample; 0: there was none.
        containers: container -> cpu and memory, as quantities.
        conditions: those that hold: LowConfidence, NoObjectsMatched or ConfigUnsupported.
        models: container -> its histograms as JSON, from which the next writer goes on.
    """

    KEY: ClassVar[str] = "name"

    name: str
    decided_ns: int
    since_ns: int = 0
    containers: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    models: dict[str, str] = msgspec.field(default_factory=dict)


class RecommendationEnded(Event, frozen=True, tag="koord.slo.RecommendationEnded.v1"):
    """A Recommendation is gone, and what was learned for it with it."""

    KEY: ClassVar[str] = "name"

    name: str
