"""Events of the `quota` context: declared quotas, requests and usage of pods, and the runtime of each quota.

Amounts are cpu in milli-cores and whole units of everything else. Source: spec/quota.md 7.3.
"""

from typing import ClassVar

import msgspec

from shared.events.base import Event
from shared.kube.elastic_quota import DeclaredQuota


class CapacitySet(Event, frozen=True, tag="koord.quota.CapacitySet.v1"):
    """The capacity that a tree shares changed. Posts the difference between `supply` and `hold:root`.

    Attributes:
        source: `nodes`, or `annotation` of the tree's root quota.
    """

    KEY: ClassVar[str] = "tree"

    tree: str
    total: dict[str, int]
    source: str = "nodes"


class QuotaDeclared(Event, frozen=True, tag="koord.quota.QuotaDeclared.v1"):
    """A quota is new."""

    KEY: ClassVar[str] = "quota"

    quota: str
    declared: DeclaredQuota
    tree: str = ""


class QuotaUpdated(Event, frozen=True, tag="koord.quota.QuotaUpdated.v1"):
    """The declaration of a quota changed; its parent is the same."""

    KEY: ClassVar[str] = "quota"

    quota: str
    declared: DeclaredQuota
    tree: str = ""


class QuotaReparented(Event, frozen=True, tag="koord.quota.QuotaReparented.v1"):
    """A quota has another parent, together with everything below it. Its runtime moves between the parents' `hold`."""

    KEY: ClassVar[str] = "quota"

    quota: str
    declared: DeclaredQuota
    tree: str = ""


class QuotaDeleted(Event, frozen=True, tag="koord.quota.QuotaDeleted.v1"):
    """A quota is gone. It has no pods and no children any more; its runtime returns to its parent."""

    KEY: ClassVar[str] = "quota"

    quota: str
    tree: str = ""


class QuotaRejected(Event, frozen=True, tag="koord.quota.QuotaRejected.v1"):
    """A quota's object breaks a rule; the last good declaration stays in force. Empty `reason`: it no longer does.

    Attributes:
        object: `resource/namespace/name` of an object that another one of the name, which is older, keeps out; empty
            for the object that has the name.
    """

    KEY: ClassVar[str] = "quota"

    quota: str
    code: str = ""
    reason: str = ""
    object: str = ""


class PodAttached(Event, frozen=True, tag="koord.quota.PodAttached.v1"):
    """A pod belongs to a quota, and requests `request` there; that vector is charged and released later. Posts to
    `pending`.

    Attributes:
        matched_by: `label`, `namespace`, `binding` or `default`.
    """

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    quota: str
    request: dict[str, int]
    tree: str = ""
    preemptible: bool = True
    matched_by: str = "label"


class PodAdmissionDecided(Event, frozen=True, tag="koord.quota.PodAdmissionDecided.v1"):
    """The response to a charge request of the scheduler that was rejected, or allowed without a charge. Posts nothing.

    Attributes:
        quota: the quota that is short.
        stage: `quota`, `nonPreemptible`, `ancestor`, `rejected`; `Late` when the cycle is over.
        shortfall: resource -> missing amount.
    """

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    epoch: int
    cycle: int
    ok: bool
    quota: str = ""
    stage: str = ""
    shortfall: dict[str, int] = msgspec.field(default_factory=dict)


class PodCharged(Event, frozen=True, tag="koord.quota.PodCharged.v1"):
    """A pod's request counts as used. Posts from `pending` to `used`; nothing when only the cycle changes.

    Attributes:
        epoch, cycle: of the newest charge request of the scheduler; 0 for a pod that was placed by others.
        reason: `reserve`, or `bound-elsewhere`.
    """

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    quota: str
    request: dict[str, int]
    epoch: int = 0
    cycle: int = 0
    reason: str = "reserve"


class PodChargeReverted(Event, frozen=True, tag="koord.quota.PodChargeReverted.v1"):
    """A pod's charge was taken back: it requests again what it used. Posts from `used` to `pending`.

    Attributes:
        reason: `unreserve`, `cycle-ended`, `epoch-began` or `bind-refused`.
    """

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    quota: str
    request: dict[str, int]
    reason: str


class PodResized(Event, frozen=True, tag="koord.quota.PodResized.v1"):
    """The request of a pod changed. Posts the difference to the account that holds it."""

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    quota: str
    before: dict[str, int]
    after: dict[str, int]


class PodMoved(Event, frozen=True, tag="koord.quota.PodMoved.v1"):
    """A pod belongs to another quota: released there, attached here, and charged if it was."""

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    before: str
    quota: str
    request: dict[str, int]
    tree: str = ""
    preemptible: bool = True
    matched_by: str = "label"


class PodReleased(Event, frozen=True, tag="koord.quota.PodReleased.v1"):
    """A pod counts no more. Reverses its postings.

    Attributes:
        reason: `deleted`, `terminal`, `quota-retired` or `unmanaged`.
    """

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    quota: str
    reason: str


class RuntimeRecomputed(Event, frozen=True, tag="koord.quota.RuntimeRecomputed.v1"):
    """New runtimes of the quotas of a tree, where they changed. A derived event: a replay computes the same, or the log
    is damaged.

    Posts the differences between the `hold` of parents and children. Quotas that are not named are unchanged.

    Attributes:
        runtimes: resource -> quota -> its runtime.
        scaled_mins: resource -> quota -> its min in force.
        dropped: resource -> quotas that have no share of it any more.
    """

    KEY: ClassVar[str] = "tree"

    tree: str
    runtimes: dict[str, dict[str, int]]
    scaled_mins: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    dropped: dict[str, list[str]] = msgspec.field(default_factory=dict)


class OveruseStarted(Event, frozen=True, tag="koord.quota.OveruseStarted.v1"):
    """A quota uses more than its runtime; the tolerance begins at `at_ns`."""

    KEY: ClassVar[str] = "quota"

    quota: str
    resources: tuple[str, ...]
    at_ns: int
    tree: str = ""


class OveruseEnded(Event, frozen=True, tag="koord.quota.OveruseEnded.v1"):
    """A quota uses at most its runtime again."""

    KEY: ClassVar[str] = "quota"

    quota: str
    at_ns: int
    tree: str = ""


class RevocationDecided(Event, frozen=True, tag="koord.quota.RevocationDecided.v1"):
    """Pods of an over-used quota must be evicted; an EvictionRequested for each follows. Nothing is posted until a pod
    is released.

    Attributes:
        runtime, used: the compared amounts.
        pods: uids in the order of eviction.
    """

    KEY: ClassVar[str] = "quota"

    quota: str
    runtime: dict[str, int]
    used: dict[str, int]
    pods: tuple[str, ...]
    at_ns: int
    tree: str = ""


class BalancesOpened(Event, frozen=True, tag="koord.quota.BalancesOpened.v1"):
    """A part of the ledger's opening balances: its quotas, pods and runtimes where its oldest kept event begins.

    Stands only in a CarriedForward. The entries of all parts, posted to empty accounts, give the balances after the
    last dropped event; part 0 clears what was posted before.

    Attributes:
        entries: events of the ledger, in the order in which they are posted.
    """

    KEY: ClassVar[str] = "part"

    part: int
    entries: tuple[
        CapacitySet
        | QuotaDeclared
        | PodAttached
        | PodCharged
        | PodChargeReverted
        | RuntimeRecomputed
        | OveruseStarted
        | QuotaRejected,
        ...,
    ] = ()
