"""Invariants of moves: a pod leaves once a place is held for it elsewhere, a member of a gang that cannot be spared, or a
victim for a waiting unit, once one is held for each that leaves with it, few of a workload move at once, and no pod is
moved twice for one cause.
"""

from collections.abc import Callable

import msgspec

from cli.dev.fault_simulation.memory_api import ApiServer, Body
from cli.dev.fault_simulation.memory_log import Row
from cli.dev.fault_simulation.migrations import MOST_MIGRATING
from services.descheduler.migration.job_reservation import job_of
from shared.events.descheduling import EvictionCaseOpened
from shared.events.intents import ObjectDesired
from shared.events.migration import MigrationArbitrated, MigrationEnded, MigrationEvictionDecided
from shared.kube import resource_names

CONTEXT = "descheduling"
_ARBITRATED, _DECIDED, _ENDED, _OPENED, _DESIRED = (
    kind.type_name()
    for kind in (MigrationArbitrated, MigrationEvictionDecided, MigrationEnded, EvictionCaseOpened, ObjectDesired)
)


class _Fields(msgspec.Struct):
    job: str = ""
    job_uid: str = ""
    together: dict[str, str] = {}
    pod: str = ""
    pod_uid: str = ""
    node: str = ""
    destination: str = ""
    unit: "_Unit | None" = None
    victims: tuple["_Victim", ...] = ()
    resource: str = ""
    uid: str = ""
    body: Body | None = None


class _Unit(msgspec.Struct):
    name: str = ""


class _Victim(msgspec.Struct):
    job: str = ""
    pod_uid: str = ""
    node: str = ""
    destination: str = ""
    owner: str = ""


class MigrationInvariant:
    """The jobs of the log, and the places that the API server has shown for them."""

    def __init__(self, api: ApiServer, report: Callable[[str], None]) -> None:
        self._api = api
        self._report = report
        self._places: dict[str, dict[str, None]] = {}  # uid of a job -> nodes where a place was held for it
        self._owners: dict[str, str] = {}  # `namespace/name` of a pod -> uid of its controller
        self._running: dict[str, str] = {}  # uid of a job that passed and has not ended -> its pod
        self._units: dict[str, tuple[str, ...]] = {}  # uid of a job that passed -> those of its unit, or itself
        self._uids: dict[str, str] = {}  # job that passed -> its uid
        self._for_units: dict[str, tuple[str, ...]] = {}  # job of a case for a waiting unit -> all jobs of that case
        self._victims: dict[str, _Victim] = {}  # uid -> in its newest case
        self._left: dict[str, dict[str, str]] = {}  # uid of a controller -> uid of a victim -> node that it leaves
        self._decided: dict[str, str] = {}  # uid of a pod that is evicted -> the job that decided it and has not ended
        self._evicted: dict[str, None] = {}  # those of them that the API server has evicted

    def changed(self, resource: str, key: str, after: Body) -> None:
        """Notes places, and the controllers of pods."""
        if resource == "pods":
            owners = after["metadata"].get("ownerReferences", ())
            self._owners[key] = next((each["uid"] for each in owners), "")
        elif resource == resource_names.RESERVATIONS and (job := job_of(after)):
            status = after.get("status", {})
            if status.get("phase") == "Available" and status.get("nodeName"):
                self._places.setdefault(job, {})[status["nodeName"]] = None

    def evicted(self, uid: str) -> None:
        """Notes an eviction that the server has accepted."""
        if uid in self._decided:
            self._evicted[uid] = None
            self._leaves(uid)

    def _leaves(self, uid: str) -> None:
        """Notes that a pod leaves its node for the cause of its case; a job of a client has no cause that could hold."""
        victim = self._victims.get(uid)
        if victim is not None and victim.owner and victim.job == self._decided[uid]:
            self._left.setdefault(victim.owner, {})[uid] = victim.node

    def _stays(self, uid: str) -> None:
        """Notes that the job of a pod has ended; if the server has not evicted the pod, it has not left, and leaves later
        by another's request.
        """
        if uid not in self._evicted:
            self._decided.pop(uid, None)
            if victim := self._victims.get(uid):
                self._left.get(victim.owner, {}).pop(uid, None)

    def appended(self, context: str, rows: list[Row]) -> None:
        """Checks the rows of a commit."""
        if context != CONTEXT:
            return
        for row in rows:
            if row.type not in (_ARBITRATED, _DECIDED, _ENDED, _OPENED, _DESIRED):
                continue
            at, fields = f"{context}/{row.seq}", msgspec.json.decode(row.data, type=_Fields)
            if row.type == _ARBITRATED:
                self._check_limit(at, fields)
            elif row.type == _DECIDED:
                self._check_place(at, fields)
            elif row.type == _ENDED:
                self._running.pop(fields.job_uid, None)
                self._stays(fields.pod_uid)
            elif row.type == _DESIRED:
                if fields.resource == resource_names.MIGRATION_JOBS and fields.body is None:
                    self._running.pop(fields.uid, None)  # its time is over, by a clock that may be ahead
            else:
                self._check_case(at, fields)

    def _check_limit(self, at: str, fields: _Fields) -> None:
        owner = self._owners.get(fields.pod, "")  # a pod that is gone counts no more: its successor is unavailable
        self._running[fields.job_uid] = fields.pod
        self._uids[fields.job] = fields.job_uid
        self._units[fields.job_uid] = tuple(sorted(fields.together.values())) or (fields.job_uid,)
        pods = self._api.objects["pods"]
        there = {pod: uid for uid, pod in self._running.items() if pod in pods and self._owners.get(pod, "") == owner}
        # The pods that leave as a unit count as one, and so do the jobs of one pod.
        together = len({self._units[uid] for uid in there.values()})
        if owner and together > MOST_MIGRATING:
            self._report(f"{at} lets {together} pods of one workload move at once; {MOST_MIGRATING} may")

    def _check_place(self, at: str, fields: _Fields) -> None:
        self._decided[fields.pod_uid] = fields.job
        self._leaves(fields.pod_uid)
        if not fields.destination or fields.destination == fields.node:
            self._report(f"{at} evicts {fields.pod} from {fields.node!r}, and its place is on {fields.destination!r}")
        elif fields.destination not in self._places.get(fields.job_uid, {}):
            self._report(f"{at} evicts {fields.pod}, and no place was held for it on {fields.destination}")
        for uid in self._units.get(fields.job_uid, ()):
            if uid not in self._places:
                self._report(f"{at} evicts {fields.pod}, and no place was held for job {uid} of its unit")
        for job in self._for_units.get(fields.job, ()):
            if self._uids.get(job, "") not in self._places:
                self._report(f"{at} evicts {fields.pod}, and no place was held for job {job} of its case")

    def _check_case(self, at: str, fields: _Fields) -> None:
        if fields.unit is not None:
            jobs = tuple(victim.job for victim in fields.victims)
            self._for_units.update(dict.fromkeys(jobs, jobs))
            owners = [victim.owner for victim in fields.victims]
            if len(set(owners)) < len(owners):
                self._report(f"{at} moves several pods of one workload for {fields.unit.name}")
        for victim in fields.victims:
            if not victim.destination or victim.destination == victim.node:
                self._report(f"{at} moves {victim.pod_uid} from {victim.node} to {victim.destination!r}")
            if victim.pod_uid in self._evicted:
                self._report(f"{at} moves {victim.pod_uid} once more")
            if victim.owner and victim.destination in self._left.get(victim.owner, {}).values():
                self._report(f"{at} moves {victim.pod_uid} to {victim.destination}, which a pod of its workload left")
            self._victims[victim.pod_uid] = victim
