"""Events of the `scheduling` context: the scheduler's decisions and their basis."""

from typing import ClassVar

import msgspec

from shared.events.base import Event


class Rejections(msgspec.Struct, frozen=True, omit_defaults=True):
    """The number of nodes that one plugin rejected for one reason.

    Attributes:
        code: the reason's stable code, such as `InsufficientResource`.
        detail: subject of the code: a resource, a taint.
    """

    plugin: str
    code: str
    nodes: int
    detail: str = ""


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the best nodes: its total, and each plugin's weighted score."""

    node: str
    score: int
    plugin_scores: dict[str, int]


class ClassEvaluated(msgspec.Struct, frozen=True, omit_defaults=True):
    """Evaluation of the nodes for a class of equal pods, at the first of them.

    Attributes:
        nodes: how many nodes there were.
        feasible: how many passed every filter.
        best: the best few, highest total first.
    """

    nodes: int
    feasible: int
    rejected: tuple[Rejections, ...] = ()
    best: tuple[Candidate, ...] = ()


class PodOutcome(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """One pod of a cycle, in the order in which the cycle took them.

    Attributes:
        class_index: index into the cycle's `classes`.
        node: where it was placed; empty when it was not.
    """

    pod_uid: str
    class_index: int
    node: str = ""


class QuotaShort(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why a pod was not charged.

    Attributes:
        quota: the quota that is short.
        stage: `quota` for the pod's own, `nonPreemptible` for its min, `ancestor` for one above, `rejected`
            where the quota itself is rejected.
        short: resource -> missing amount.
        message: upstream's text, or the reason of the rejection.
    """

    quota: str
    stage: str
    short: dict[str, int]
    message: str = ""


class CycleDecided(Event, frozen=True, tag="koord.scheduling.CycleDecided.v1"):
    """The scheduler took a batch of pods and placed those that fit. Holds the basis of the decision: `seen`, `now_ns`,
    `config`.

    Attributes:
        cycle: number of the cycle, from 1, within this context.
        pods: the pods in the order in which they were taken, with their outcomes.
        classes: per class of equal pods, the evaluation of the nodes.
        by: empty when the cycle chose the nodes, `extender` when another scheduler did and requested the binding.
        charged_at: `quota` seq at which the quota ledger had recorded its response for this cycle; 0 without a request.
            The pods that it rejected are among `pods`, with a class of reason `ElasticQuota`.
        reservations: uids among `pods` that are those of Reservations; no quota counts them.
        refused: uid of a pod that the quota ledger did not charge -> its response: an input of the cycle, which a
            replay takes from here. Empty in the histories of releases before it was recorded.
    """

    KEY: ClassVar[str] = "cycle"

    cycle: int
    pods: tuple[PodOutcome, ...] = ()
    classes: tuple[ClassEvaluated, ...] = ()
    by: str = ""
    charged_at: int = 0
    reservations: tuple[str, ...] = ()
    refused: dict[str, QuotaShort] = msgspec.field(default_factory=dict)


class PodPlaced(Event, frozen=True, tag="koord.scheduling.PodPlaced.v1"):
    """The scheduler chose a node for a pod. An intent: the gateway completes it with PodBound or BindRejected.

    Attributes:
        cycle: the CycleDecided that holds `now_ns`, the positions seen, and the evaluation of the nodes by each plugin.
        request: resource name -> amount; cpu in milli-cores, memory in bytes, the rest in whole units.
        score: the winner's total, weights applied, 0..100 a plugin.
        annotations: allocations besides the node, as annotations written with the binding: CPUs, NUMA zones.
        node_lock: annotation of the node that has to name the pod before it is bound, for device plugins of vendors
            that serve one pod at a time; empty for none.
        passes: unit with a planned start that the pod passes -> why that start does not move: `OtherNode` (no pod of
            the unit is planned for the node), `EndsBefore` (the deadline of the pod ends it before the start),
            `FitsBeside` (the node holds the unit's pods and this one).
        ignored: labels and annotations of the pod, and fields of them, that have no effect, in words: they cannot be
            read, are misspelt or unknown.
    """

    KEY: ClassVar[str] = "pod"

    pod_uid: str  # identity: a pod re-created under the same name is another pod
    pod: str  # namespace/name, for people
    node: str
    cycle: int
    request: dict[str, int]
    score: int = 0
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    passes: dict[str, str] = msgspec.field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    node_lock: str = ""


class UnitStartPlanned(Event, frozen=True, tag="koord.scheduling.UnitStartPlanned.v1"):
    """The start of a waiting unit is planned, on nodes where pods are expected to end; or there is no planned start any
    more. Pods behind it in the queue are placed only where this start does not move.

    Attributes:
        unit: name of the unit: its gang, or the gangs of its group, separated by commas.
        scheduler, plugin: schedulerName of its pods, and the plugin that groups them.
        nodes: uid of each pod that the unit needs -> its planned node; empty where the planned start ends.
        waits_for: uids of the pods on these nodes that have to end first.
        starts_ns: instant by which the deadlines of these end them, since the epoch; 0 where one has no deadline.
        reason: why it was planned, or ended: `Refused`, `NoLongerWaits`, `NoLongerFits`.
    """

    KEY: ClassVar[str] = "unit"

    unit: str
    scheduler: str
    plugin: str
    cycle: int
    nodes: dict[str, str] = msgspec.field(default_factory=dict)
    waits_for: tuple[str, ...] = ()
    starts_ns: int = 0
    reason: str = ""


class GangPlaced(Event, frozen=True, tag="koord.scheduling.GangPlaced.v1"):
    """The pods that a gang needs have a node for the first time: the wait of the gang, from which the start of similar
    gangs is estimated. The pods have a PodPlaced each in the same append.

    Attributes:
        waited_ns: since the gang had as many pods as its minimum, and for one of a group of gangs, since all had.
        pods: number of its pods that were placed together.
        request: of these pods; resource name -> amount, cpu in milli-cores, memory in bytes, the rest in whole units.
        quota: that counts its first pod; empty without one.
        priority, qos: priority class and QoS class of its first pod; empty without one.
    """

    KEY: ClassVar[str] = "gang"

    gang: str  # namespace/name
    cycle: int
    waited_ns: int
    pods: int
    request: dict[str, int]
    quota: str = ""
    priority: str = ""
    qos: str = ""


class PlacementReserved(Event, frozen=True, tag="koord.scheduling.PlacementReserved.v1"):
    """The scheduler holds capacity of a node without a binding. It ends with a PodPlaced of the same pod, with
    PlacementReleased, or with the pod or Reservation itself.

    Attributes:
        holder_uid: uid of the pod or Reservation that it is held for.
        holder: `namespace/name` of the pod, or name of the Reservation.
        kind: `Pod` or `Reservation`.
        waits_for: why there is no binding: `unit` (other pods of its unit have no node yet), `volumes` (they are
            being prepared) or `owners` (pods that use the Reservation).
        unit: name of its unit, if that has several pods.
        cycle, request, score, annotations: as in PodPlaced; the annotations are those of a later binding.
    """

    KEY: ClassVar[str] = "holder"

    holder_uid: str
    holder: str
    kind: str
    node: str
    cycle: int
    waits_for: str
    request: dict[str, int]
    unit: str = ""
    score: int = 0
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class PlacementReleased(Event, frozen=True, tag="koord.scheduling.PlacementReleased.v1"):
    """Capacity that PlacementReserved held is free again, and its holder waits for a node as before.

    Attributes:
        holder_uid, holder, kind, node, unit: as in PlacementReserved.
        reason: for people: what ended the wait.
    """

    KEY: ClassVar[str] = "holder"

    holder_uid: str
    holder: str
    kind: str
    node: str
    reason: str
    unit: str = ""


class ReservationUnschedulable(Event, frozen=True, tag="koord.scheduling.ReservationUnschedulable.v1"):
    """No node passed every filter for a Reservation; the condition in its status says so.

    Attributes:
        code, message, plugins, attempt: as in PodUnschedulable.
    """

    KEY: ClassVar[str] = "reservation"

    reservation_uid: str
    reservation: str
    cycle: int
    code: str
    message: str
    plugins: tuple[str, ...] = ()
    attempt: int = 1


class PlacementCompared(Event, frozen=True, tag="koord.scheduling.PlacementCompared.v1"):
    """Another scheduler bound a pod; this is our evaluation of the nodes just before. Nothing follows from it. `cause`
    is the observed binding.

    Attributes:
        scheduler: the pod's `schedulerName`.
        profile: the profile whose filters and scores were used.
        request: resource name -> amount, as in PodPlaced.
        as_of: positions that the evaluation rests on: those just before the observed binding.
        as_of_ns: its `now`: the instant at which the binding was recorded.
        evaluation: evaluation of the nodes for the pod.
        their_node: the node it was bound to.
        our_node: the node we would have chosen; empty when none passed our filters.
        our_score: the total of `our_node`, weights applied; 0 without one.
        their_score: the total of `their_node`; 0 when it did not pass our filters.
        gap: `our_score` - `their_score` when `their_node` passed, else 0.
        their_rejections: each reason of the first plugin that rejects `their_node`. Empty when it passed.
        their_plugin_scores: plugin -> its weighted part of `their_score`; None when it did not pass.
    """

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    scheduler: str
    profile: str
    request: dict[str, int]
    as_of: dict[str, int]
    as_of_ns: int
    evaluation: ClassEvaluated
    their_node: str
    our_node: str = ""
    our_score: int = 0
    their_score: int = 0
    gap: int = 0
    their_rejections: tuple[Rejections, ...] = ()
    their_plugin_scores: dict[str, int] | None = None


class PodNominated(Event, frozen=True, tag="koord.scheduling.PodNominated.v1"):
    """Pods are preempted, and their capacity is reserved for this pod until it is placed; `cause` is the pod's first
    observation.

    Attributes:
        node: the nominated node; empty when the pod lost its nomination: to a pod of higher priority, unless `reason`
            says otherwise.
        victims: uids of the pods to evict, the most important first; none where pods that were evicted before free
            enough.
        violations: how many of them exceed their disruption budgets; budgets: the names of these, as `namespace/name`.
        victim_pods, victim_priorities: their names, as `namespace/name`, and priorities, in the same order.
        candidates: on how many of the examined nodes victims would have helped; the chosen one loses least.
        quota: the quota whose capacity the victims use, wherever they run: the pod fits its node, but not its quota.
            Empty where the node lacks capacity.
        reason: for people: why the pod lost its nomination.
    """

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    node: str
    cycle: int
    victims: tuple[str, ...] = ()
    violations: int = 0
    victim_pods: tuple[str, ...] = ()
    victim_priorities: tuple[int, ...] = ()
    candidates: int = 0
    quota: str = ""
    budgets: tuple[str, ...] = ()
    reason: str = ""


class GangEvictionDecided(Event, frozen=True, tag="koord.scheduling.GangEvictionDecided.v1"):
    """A gang lost a member and cannot go on: its other pods are evicted; an EvictionRequested for each follows. `cause`
    is the event by which the member was lost.

    Attributes:
        gang: `namespace/name`.
        lost, lost_uid: the member, as `namespace/name`, and its uid.
        how: `evicted` (by another service or a node agent), or `failed` (the failure policy of its group is `Evict`).
        left: number of members that it left; minimum: the number that the gang needs.
        pods: those that are evicted, as `namespace/name`, those of the other gangs of its group included.
    """

    KEY: ClassVar[str] = "gang"

    gang: str
    lost: str
    lost_uid: str
    how: str
    left: int
    minimum: int
    pods: tuple[str, ...]


class PodUnschedulable(Event, frozen=True, tag="koord.scheduling.PodUnschedulable.v1"):
    """No node passed every filter for a pod, or no cycle tries it. An intent when its code changed: the gateway writes the
    pod's condition.

    Attributes:
        code: stable code of the reason that rejects most nodes.
        message: the reasons with their counts, for people.
        plugins: the plugins that rejected nodes; an event that may resolve one of their reasons requeues the pod.
        attempt: how many cycles have rejected the pod since it was last placed, from 1; 0 for a pod that no cycle
            tries, since its gang lacks pods.
        ignored: as in PodPlaced.
    """

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    cycle: int
    code: str
    message: str
    plugins: tuple[str, ...] = ()
    attempt: int = 1
    ignored: tuple[str, ...] = ()
