"""The cases of the descheduler: those whose moves have not ended, and what pods have left which nodes lately.

A fold over `descheduling`, and over the phases of PodMigrationJobs in `cluster`; each context writes fields of its own.
"""

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from services.descheduler.migration.pod_migration_job import EVICT_DIRECTLY
from shared.events import Event, RecordedEvent
from shared.events.base import without_basis
from shared.events.descheduling import EvictionCaseClosed, EvictionCaseOpened, EvictionStepDecided
from shared.kube.instants import SECOND

ADMITTED, STILL_WAITS, GONE = "admitted", "still waits", "gone"
"""What became of the unit of a case."""

KEPT_NS = 6 * 3600 * SECOND
"""A case that is closed counts for so long: no setting lets a rule about the past look further back."""


class LeftNode(NamedTuple):
    """A node that a pod has left, or leaves."""

    node: str
    plugin: str
    case: str
    at_ns: int


class JobPhase(NamedTuple):
    """A PodMigrationJob, as `cluster` has it.

    Attributes:
        at_ns: when its phase was first observed.
        bound: `namespace/name` and uid of the pod that replaced the one that left; empty before.
        is_direct: it evicts its pod, and awaits no successor.
    """

    phase: str
    message: str
    at_ns: int
    bound: tuple[str, str] = ("", "")
    is_direct: bool = False


class OpenedCase(msgspec.Struct, frozen=True, gc=False):
    """A case.

    Attributes:
        event, at_ns: its event, and the instant of it.
        steps: in order.
        closed_ns: the instant of `closed`; 0 before.
    """

    event: EvictionCaseOpened
    at_ns: int
    steps: tuple[EvictionStepDecided, ...] = ()
    closed: EvictionCaseClosed | None = None
    closed_ns: int = 0

    @property
    def started(self) -> frozenset[str]:
        """The pods that leave, or have left."""
        return frozenset(pod for step in self.steps for pod in step.pods)

    @property
    def stopped(self) -> str:
        """Why the other victims stay; empty while the case goes on."""
        return next((step.stopped for step in self.steps if step.stopped), "")


class EvictionCases:
    """Cases and jobs.

    Attributes:
        cases: id -> case, oldest first; closed ones for `KEPT_NS`.
        jobs: name -> PodMigrationJob, while it exists.
    """

    def __init__(self) -> None:
        self.cases: dict[str, OpenedCase] = {}
        self.jobs: dict[str, JobPhase] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event of `descheduling`."""
        event: Event = record.event
        match event:
            case EvictionCaseOpened(case=case):
                self.cases[case] = OpenedCase(without_basis(event), record.at_ns)
                self._forget(record.at_ns)
            case EvictionCaseClosed(case=case) if case in self.cases:
                closed = without_basis(event)
                self.cases[case] = replace(self.cases[case], closed=closed, closed_ns=record.at_ns)
            case EvictionStepDecided(case=case, step=step) if case in self.cases:
                opened = self.cases[case]
                kept = [each for each in opened.steps if each.step != step]
                steps = sorted((*kept, without_basis(event)), key=lambda each: each.step)
                self.cases[case] = replace(opened, steps=tuple(steps))
            case _:
                pass

    def observe_job(self, name: str, body: dict[str, Any], at_ns: int) -> None:
        """Folds a PodMigrationJob as it is now."""
        status = body.get("status")
        status = status if isinstance(status, dict) else {}
        bound = status.get("podRef")
        bound = bound if isinstance(bound, dict) else {}
        key = f"{bound.get('namespace', '')}/{bound.get('name', '')}" if bound else ""
        before, phase = self.jobs.get(name), str(status.get("phase") or "")
        since_ns = before.at_ns if before is not None and before.phase == phase else at_ns
        message = str(status.get("message") or "")
        spec = body.get("spec")
        is_direct = isinstance(spec, dict) and spec.get("mode") == EVICT_DIRECTLY
        self.jobs[name] = JobPhase(phase, message, since_ns, (key, str(bound.get("uid", ""))), is_direct)

    def forget_job(self, name: str) -> None:
        """Folds the deletion of a PodMigrationJob."""
        self.jobs.pop(name, None)

    @property
    def open(self) -> list[OpenedCase]:
        """The cases that are not closed, oldest first."""
        return [each for each in self.cases.values() if each.closed is None]

    @property
    def open_for_units(self) -> list[OpenedCase]:
        """The open cases for waiting units, oldest first."""
        return [each for each in self.open if each.event.unit is not None and not each.event.dry_run]

    def tried_units(self) -> dict[str, int]:
        """Returns the name of a unit that was not admitted -> the instant at which its newest case was closed. A case
        without a victim has moved nothing for its unit.
        """
        found: dict[str, int] = {}
        for each in self.cases.values():
            unit, closed = each.event.unit, each.closed
            if unit is not None and each.event.victims and closed is not None and closed.unit != ADMITTED:
                name = unit.name
                found[name] = max(found.get(name, 0), each.closed_ns)
        return found

    def jobs_together(self) -> dict[str, dict[str, str]]:
        """Returns case -> job -> uid of its pod, of open cases whose victims leave all together."""
        return {
            each.event.case: {victim.job: victim.pod_uid for victim in each.event.victims}
            for each in self.open_for_units
        }

    def moving_pods(self) -> dict[str, str]:
        """Returns uid -> case of the victims of open cases."""
        return {victim.pod_uid: each.event.case for each in self.open for victim in each.event.victims}

    def sources(self, plugin: str) -> dict[str, str]:
        """Returns node -> open case of a plugin that moves pods off it."""
        return {
            victim.node: each.event.case
            for each in self.open
            if each.event.plugin == plugin
            for victim in each.event.victims
        }

    @property
    def left(self) -> dict[str, list[LeftNode]]:
        """The nodes that pods have left: by uid and by name of the pod, by uid of its controller, and by uid of the pod that
        replaced it. Dry runs do not count, nor do pods that stayed.
        """
        found: dict[str, list[LeftNode]] = {}
        for each in self.cases.values():
            if each.event.dry_run:
                continue
            stayed = {one.pod for one in each.closed.victims if one.outcome == "stayed"} if each.closed else set()
            for victim in each.event.victims:
                if victim.pod in stayed:
                    continue
                left = LeftNode(victim.node, each.event.plugin, each.event.case, each.at_ns)
                job = self.jobs.get(victim.job)
                keys = (victim.pod_uid, victim.pod, victim.owner, *(job.bound if job else ()))
                for key in dict.fromkeys(key for key in keys if key):
                    found.setdefault(key, []).append(left)
        return found

    @property
    def received_ns(self) -> dict[str, int]:
        """Node -> the newest instant of a case that moves pods to it."""
        found: dict[str, int] = {}
        for each in self.cases.values():
            if not each.event.dry_run:
                for victim in each.event.victims:
                    if victim.destination:
                        found[victim.destination] = max(found.get(victim.destination, 0), each.at_ns)
        return found

    def _forget(self, now_ns: int) -> None:
        for case in [
            name for name, each in self.cases.items() if each.closed is not None and each.at_ns < now_ns - KEPT_NS
        ]:
            del self.cases[case]
