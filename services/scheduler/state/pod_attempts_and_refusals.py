"""The parts of a pod's record that most running pods never have: attempts in vain, refused placements, evictions.

A record refers to these values by one word each, None for a pod without them.
"""

import msgspec

PluginReason = tuple[str, str]
"""(plugin, reason code)."""


FOR_UNIT = "unit"
"""What a hold waits for whose unit has pods without a node."""

FOR_VOLUMES = "volumes"
"""What a hold waits for whose volumes are being bound or provisioned, or those of other pods of its unit."""

NOT_PREPARED: PluginReason = ("VolumeBinding", "VolumesNotBound")
"""The reason of a pod whose node was held for its volumes, and was released; it is tried again after its backoff."""

TIMED_OUT: PluginReason = ("Coscheduling", "GangTimedOut")
"""The reason of a pod whose node was held for others of its gang, and was released."""


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """A cycle that found no node for pods of a class; all of them share it.

    Attributes:
        at_ns, seq: its time, and its seq in `scheduling`.
        saw: the `cluster` seq that it had read.
        saw_quota: the `quota` seq up to which it, or the ledger for it, had read.
        saw_reports: the same for each of `metrics-*`.
        saw_released: `scheduling` seq of the last PlacementReleased before it.
    """

    at_ns: int = 0
    seq: int = 0
    saw: int = 0
    saw_quota: int = 0
    saw_reports: dict[str, int] = {}
    reasons: tuple[PluginReason, ...] = ()
    saw_released: int = 0


class Hold(msgspec.Struct, frozen=True, array_like=True):
    """A placement without a binding.

    Attributes:
        seq: its seq in `scheduling`.
        waits_for, unit: as in PlacementReserved.
        attempts: the number of cycles without a node before it.
        saw: the `cluster` seq that its cycle had read.
        annotations: those of a later binding.
    """

    seq: int
    waits_for: str
    unit: str = ""
    attempts: int = 0
    saw: int = 0
    annotations: dict[str, str] = {}


class Decisions(msgspec.Struct, frozen=True, array_like=True):
    """The facts that `scheduling` states of a pod beside its placement.

    Attributes:
        attempt: the last cycle without a node, before the newest placement or after.
        condition_code: the code last written to the pod's condition.
        compared: the placement by another scheduler has been compared with our own.
        eviction_seq: seq of our newest eviction request for it.
        placed_allocation: the allocation of our newest placement.
        hold: the newest placement without a binding, also when it has ended.
        condition_message: its message, of a Reservation alone.
        released_seq: seq of the newest PlacementReleased.
        pre_allocated: the Reservation that took it over while it ran, as in annotation `reservation-allocated`.
    """

    attempt: Attempt = Attempt()
    condition_code: str = ""
    compared: bool = False
    eviction_seq: int = 0
    placed_allocation: dict[str, str] | None = None
    hold: Hold | None = None
    released_seq: int = 0
    condition_message: str = ""
    pre_allocated: str = ""


class Outcomes(msgspec.Struct, frozen=True, array_like=True):
    """The facts that `cluster` states of a pod while it had no node, and of decisions that were not carried out.

    Attributes:
        changed_seq: seq of the last change of its class while it had no node.
        refused_seq: `scheduling` seq of our newest placement with another outcome than PodBound.
        refusals: the number of such placements.
        suppressed_seq: seq of the last BindSuppressed; the pod waits until the gateway starts anew.
        eviction_refused_seq: `scheduling` seq of our newest eviction request that was refused or failed;
            eviction_refused_at: the `cluster` seq of that outcome.
    """

    changed_seq: int = 0
    refused_seq: int = 0
    refusals: int = 0
    suppressed_seq: int = 0
    eviction_refused_seq: int = 0
    eviction_refused_at: int = 0


NO_DECISIONS = Decisions()
NO_OUTCOMES = Outcomes()
