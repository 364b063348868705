"""Events of the `descheduling` context: what is wrong in the cluster by measurement, which pods leave their nodes for
it, where each of them goes, and what that has changed afterwards.

A case is one scenario of one plugin in one cycle. The PodMigrationJobs of its victims follow it as intents
(ObjectDesired). A cycle that finds nothing leaves no event.
"""

from typing import ClassVar

import msgspec

from shared.events.base import Event


class DetectorRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The anomaly detector of a node.

    Attributes:
        timeout_ns, abnormalities, normalities: the condition with which it was made.
        counts: observations of all, of the normal, of the abnormal, and in a row of both, since they were cleared.
        expires_ns: in an anomaly: when it ends by itself.
        used_ns: when the node was last observed as abnormal.
    """

    timeout_ns: int
    abnormalities: int
    normalities: int
    is_anomalous: bool
    counts: tuple[int, int, int, int, int]
    expires_ns: int
    used_ns: int


class AnomaliesObserved(Event, frozen=True, tag="koord.descheduling.AnomaliesObserved.v1"):
    """The anomaly detectors of a plugin changed; these are all that it has now.

    Attributes:
        of: profile and plugin, as `koord-descheduler/LowNodeLoad`.
        node, prod: node -> detector of its usage, and of that of its prod pods; a node that was never high, or not for
            long, has none.
        unrelieved: node of high usage -> why no pod leaves it, in words; of the first nodes alone.
        unrelieved_others: the number of such nodes beyond these.
    """

    KEY: ClassVar[str] = "of"

    of: str
    node: dict[str, DetectorRecord] = msgspec.field(default_factory=dict)
    prod: dict[str, DetectorRecord] = msgspec.field(default_factory=dict)
    unrelieved: dict[str, str] = msgspec.field(default_factory=dict)
    unrelieved_others: int = 0


class Cause(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Something that is wrong with a node, as it was measured before anything moved.

    Attributes:
        scope: `node`, `prod` for its prod pods alone; or what a plugin names.
        resource: milli-cores for cpu, bytes for memory, else whole units.
        predicted: the predicted peak for which it counts as wrong; 0: for what was measured.
    """

    node: str
    scope: str
    resource: str
    measured: int
    limit: int
    capacity: int = 0
    predicted: int = 0


class Victim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that leaves its node.

    Attributes:
        pod: `namespace/name`.
        owner: uid of its controller; empty without one.
        destination: the node that the scheduler found for it, together with all other victims; empty where the
            configuration allows moves without one.
        job: name of its PodMigrationJob; empty in a dry run.
        usage: measured.
        ended: it never runs again, so that it is removed and needs no destination.
        gang: which cannot spare it: all its victims leave together, once a place is held for each; empty for none.
    """

    pod: str
    pod_uid: str
    node: str
    reason: str
    owner: str = ""
    destination: str = ""
    job: str = ""
    usage: dict[str, int] = msgspec.field(default_factory=dict)
    ended: bool = False
    gang: str = ""


class PassedOver(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that a plugin chose or considered, and that does not leave its node."""

    pod: str
    node: str
    why: str


class Expected(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The measured amount of a node once its victims have left, by their own usage."""

    node: str
    resource: str
    before: int
    after: int
    limit: int


class WaitingUnit(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A gang or a pod that waits for capacity, for which the victims of a case leave: all of them, or none.

    Attributes:
        name: `namespace/name`.
        kind: `Gang` or `DevicePod`.
        wait_s: for how long it has waited; limit_s: for how long a unit waits at least before pods leave for it.
        nodes: uid of each of its waiting pods -> the node that the scheduler planned for it after the moves.
        admit_within_s: after the last move; a unit that waits longer was not admitted by them.
    """

    name: str
    kind: str
    wait_s: int
    limit_s: int
    nodes: dict[str, str]
    admit_within_s: int


class EvictionCaseOpened(Event, frozen=True, tag="koord.descheduling.EvictionCaseOpened.v1"):
    """A plugin found something wrong, and pods that leave their nodes for it.

    Attributes:
        case: its id, `PLUGIN-CYCLE`, in lower case.
        cycle: number of the cycle, from 1.
        victims: in the order in which they leave. Each has a destination that was free for it besides all others.
        passed_over: some of those that do not; passed_over_count: their number.
        expected: the predicted gain.
        budget: the limit of the configuration -> what is left of it after this case.
        scheduler_seen: the positions that the scheduler's answer rests on.
        dry_run: nothing is created.
        unit: for which the victims leave; None for a case about nodes or pods themselves.
    """

    KEY: ClassVar[str] = "case"

    case: str
    cycle: int
    profile: str
    plugin: str
    causes: tuple[Cause, ...] = ()
    victims: tuple[Victim, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    passed_over_count: int = 0
    expected: tuple[Expected, ...] = ()
    budget: dict[str, int] = msgspec.field(default_factory=dict)
    scheduler_seen: dict[str, int] = msgspec.field(default_factory=dict)
    dry_run: bool = False
    unit: WaitingUnit | None = None


class EvictionStepDecided(Event, frozen=True, tag="koord.descheduling.EvictionStepDecided.v1"):
    """The next pods of a case leave, or no more of them.

    Attributes:
        step: its number, from 1.
        pods: those that leave now; their jobs follow as intents.
        stopped: why the rest of the case's victims stay; empty while it goes on.
    """

    KEY: ClassVar[str] = "case"

    case: str
    step: int
    pods: tuple[str, ...] = ()
    stopped: str = ""


class VictimOutcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The end of a victim's move: `moved`, `evicted` where no successor was seen, or `stayed` with the reason."""

    pod: str
    outcome: str
    why: str = ""


class Measured(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The gain on a node: expected and measured after the case, where there is a newer report."""

    node: str
    resource: str
    before: int
    expected: int
    after: int | None = None


class EvictionCaseClosed(Event, frozen=True, tag="koord.descheduling.EvictionCaseClosed.v1"):
    """All moves of a case have ended.

    Attributes:
        outcome: all `moved`; `evicted`: all left, and of some no successor was seen; `partly`, or `none`; `dry run`.
        victims: the end of each.
        measured: the benefit, measured by the first report after the last move.
        unit: of a case for a waiting unit: `admitted`, `still waits`, or `gone`; empty for other cases and dry runs.
    """

    KEY: ClassVar[str] = "case"

    case: str
    outcome: str
    victims: tuple[VictimOutcome, ...] = ()
    measured: tuple[Measured, ...] = ()
    unit: str = ""


class DeschedulingCycled(Event, frozen=True, tag="koord.descheduling.DeschedulingCycled.v1"):
    """A cycle that decided something, or that failed; its cases follow.

    Attributes:
        cycle: its number, from 1.
        nodes: of the cluster that the configuration selects.
        cases: ids of the cases that it opened.
        faults: `profile/plugin` -> why the plugin could not work.
    """

    KEY: ClassVar[str] = "name"

    name: str
    cycle: int
    nodes: int
    cases: tuple[str, ...] = ()
    faults: dict[str, str] = msgspec.field(default_factory=dict)
