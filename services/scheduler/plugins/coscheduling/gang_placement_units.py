"""The gangs of a State as groups of the queue: which pods are placed together, and how many of them are needed.

A gang is satisfied by its match policy: `once-satisfied` when a member was ever bound, `only-waiting` by members that
are placed and not yet bound, `waiting-and-running` by these and bound ones. Pods of a satisfied group of gangs are
placed one by one. All others are one unit, which is tried once each gang of the group has enough pods.

Upstream reserves the members one after the other, and releases them at Permit; here all are placed in one cycle, so
members of a Strict gang never wait with a node. Those of a NonStrict gang hold theirs for the waiting time. Source:
spec/scheduler-workloads.md 2.2, 2.3 (PreEnqueue, Permit).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from services.scheduler.framework.gang_grouping_interface import (
    ALONE,
    GangStart,
    Gathering,
    Membership,
    PodGrouping,
    Requirement,
    UnitFailure,
)
from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.coscheduling.args import CoschedulingArgs
from services.scheduler.plugins.coscheduling.gang_features import classes_of, waited_ns
from services.scheduler.state.gang_records import GangRecord, Member
from services.scheduler.state.pod_attempts_and_refusals import FOR_UNIT
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.gang import BIND_COUNT, BIND_GROUP, ONCE_SATISFIED, ONLY_WAITING, WAITING_AND_RUNNING
from shared.domain.network_topology import GatherSpec, read_gather


class GangCounts(NamedTuple):
    """The pods of a gang by what they do.

    Attributes:
        pending: without a node, and free to be placed.
        placed: placed by this scheduler and not yet observed on their node.
        bound: observed on a node, ended ones included.
    """

    pending: int
    placed: int
    bound: int


class GangGrouping(PodGrouping):
    """The gangs of a State, for the profiles with this plugin."""

    def __init__(self, view: SchedulerState, args: CoschedulingArgs) -> None:
        self._view = view
        self.args = args
        self.preempts = args.preempts
        self._memberships: dict[str, Membership] = {}  # by gang
        self._stages: dict[str, tuple[str, str]] = {}  # uid of a member that is counted -> its gang, its stage
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)  # gang -> its members by stage
        self._held: dict[str, set[str]] = {}  # gang -> uids of the members whose node is held
        self._preparing: dict[str, set[str]] = {}  # the same, of those whose node is held for volumes of the unit
        self._released: dict[str, int] = {}  # gang -> seq of the last release of a held node
        self._in_groups_of: dict[str, dict[str, None]] = {}  # gang -> gangs whose group has it
        self._stale: dict[str, None] = {}

    @classmethod
    def counted(cls, view: SchedulerState, args: CoschedulingArgs, gangs: Iterable[str]) -> "GangGrouping":
        """Returns a grouping that has counted the members of these gangs, for a reader that follows no changes."""
        grouping = cls(view, args)
        for gang in gangs:
            record = view.gangs.gangs.get(gang)
            for uid in record.members if record is not None else ():
                grouping.pod_changed(uid)
        return grouping

    # membership

    def of(self, pod_record: PodRecord) -> Membership:
        """Returns the membership of a waiting pod; that of a gang that has changed is the one before until `changed`,
        which returns all its pods where the membership differs.
        """
        gang = self._view.gangs.gang_of.get(pod_record.uid)
        if gang is None:
            return ALONE
        if gang not in self._memberships:
            self._memberships[gang] = self._membership(gang)
        return self._memberships[gang]

    def pod_changed(self, uid: str) -> bool:
        """Notes a change of a pod; its placement changes the counts of its gang. Returns True for one with a gang."""
        gang = self._view.gangs.gang_of.get(uid)
        before = self._stages.pop(uid, None)
        if before is not None:
            for by_gang in (self._held, self._preparing):
                held = by_gang.get(before[0], set())
                held.discard(uid)
                if not held:
                    by_gang.pop(before[0], None)
            self._counts[before[0]][before[1]] -= 1
            self.gang_changed(before[0])
        if gang is not None:
            stage = self.stage(uid, self._view.gangs.gangs[gang].members[uid])
            self._stages[uid] = gang, stage
            self._counts[gang][stage] += 1
            pod = self._view.pods[uid]
            if pod.decisions is not None and pod.decisions.released_seq > self._released.get(gang, 0):
                self._released[gang] = pod.decisions.released_seq
            hold = pod.hold
            if hold is not None and stage == "placed":
                waiting = self._held if hold.waits_for == FOR_UNIT else self._preparing
                waiting.setdefault(gang, set()).add(uid)
            self.gang_changed(gang)
        return gang is not None

    def gang_changed(self, gang: str) -> None:
        """Notes a change of a gang, for all whose group it belongs to."""
        self._stale[gang] = None
        self._stale.update(self._in_groups_of.get(gang, {}))

    def changed(self) -> Iterable[str]:
        """Returns the uids of all pods of the gangs whose membership changed."""
        found: list[str] = []
        gangs = self._view.gangs.gangs
        for gang in self._stale:
            before = self._memberships.pop(gang, None)
            if gang not in gangs:
                self._counts.pop(gang, None)
                self._released.pop(gang, None)
                continue
            after = self._memberships[gang] = self._membership(gang)
            if before != after:
                found += gangs[gang].members
        self._stale.clear()
        return found

    def _membership(self, gang: str) -> Membership:
        records = self._view.gangs.gangs
        record = records.get(gang)
        settings = record.settings if record is not None else None
        if record is None or settings is None:
            return Membership(held_back=Reason("GangUnknown", gang))
        for other in settings.groups:
            self._in_groups_of.setdefault(other, {})[gang] = None
        present = [records[other] for other in settings.groups if other in records]
        changed_seq = max((each.changed_seq for each in (record, *present)), default=0)
        if preparing := [other for other in settings.groups if other in self._preparing]:
            # A pod that were bound now would be one of a partial gang if the volumes of the others fail.
            words = f"gang {', '.join(preparing)} waits for the volumes of its placed pods"
            return Membership("", Reason("GangIncomplete", words), changed_seq, keeps_nomination=True)
        if self.is_satisfied_for_good(gang):
            return self._satisfied(settings.groups, changed_seq)
        released_seq = max((self._released.get(other, 0) for other in settings.groups), default=0)
        missing = list(self.missing(settings.groups))
        if missing:
            return Membership("", Reason("GangIncomplete", "; ".join(missing)), changed_seq)
        needed = self.needed(settings.groups)
        if not any(needed.values()):
            return self._satisfied(settings.groups, changed_seq)
        short = [
            f"gang {other} needs {count} pods that can be placed, and has {pending}"
            for other, count in needed.items()
            if (pending := self.counts(other).pending) < count
        ]
        held_back = Reason("GangIncomplete", "; ".join(short)) if short else None
        return Membership("" if short else ",".join(settings.groups), held_back, changed_seq, released_seq)

    def _satisfied(self, groups: Sequence[str], changed_seq: int) -> Membership:
        """Returns the membership of a pod whose gang needs no others: it is placed alone, or with those that return to
        the network domain of its gang.
        """
        if self._spec(groups) is None:
            return Membership(changed_seq=changed_seq)
        there = [gang for gang in groups if gang in self._view.gangs.gangs]
        return Membership(",".join(there), changed_seq=changed_seq)

    def _spec(self, groups: Sequence[str]) -> GatherSpec | None:
        """Returns the wishes of the first gang of a group that has any."""
        if not self.args.gathers:
            return None
        records = (self._view.gangs.gangs.get(gang) for gang in groups)
        settings = (record.settings for record in records if record is not None)
        found = (read_gather(each.topology) for each in settings if each is not None)
        return next((spec for spec in found if spec is not None), None)

    def missing(self, groups: Sequence[str]) -> Iterable[str]:
        """Yields the gangs of a group that have too few pods to be tried."""
        for gang in groups:
            record = self._view.gangs.gangs.get(gang)
            if record is None:
                yield f"gang {gang} does not exist"
            elif (settings := record.settings) is None:
                yield f"gang {gang} has no readable minimum"
            elif len(record.members) < settings.minimum:
                yield f"gang {gang} has {len(record.members)} of {settings.minimum} pods"

    # counts

    def counts(self, gang: str) -> GangCounts:
        """Returns the number of pods of a gang by what they do, as of the last change of each that was noted."""
        stages: Mapping[str, int] = self._counts.get(gang, {})
        return GangCounts(stages.get("pending", 0), stages.get("placed", 0), stages.get("bound", 0))

    def stage(self, uid: str, member: Member) -> str:
        """Returns what a member does, as the field of `GangCounts` that counts it; empty for one that none counts."""
        if member.is_bound:
            return "bound"
        pod_record = self._view.pods[uid]
        if pod_record.is_placed():
            return "" if pod_record.ended else "placed"
        return "pending" if pod_record.waiting(self._view.gateway_since) else ""

    def needed(self, groups: Sequence[str]) -> dict[str, int]:
        """Returns for each gang of a group how many more of its pods have to be placed to satisfy it."""
        needed = {}
        for gang in groups:
            record = self._view.gangs.gangs[gang]
            settings, policy, counts = record.settings, self.policy(record), self.counts(gang)
            there = counts.placed + (counts.bound if policy == WAITING_AND_RUNNING else 0)
            needed[gang] = (
                0 if settings is None or self.is_satisfied_for_good(gang) else max(settings.minimum - there, 0)
            )
        return needed

    def is_complete(self, groups: Sequence[str]) -> bool:
        """Returns True when every gang of a group is satisfied by the members that are placed or bound."""
        there = self._view.gangs.gangs
        return all(gang in there and there[gang].settings is not None for gang in groups) and not any(
            self.needed(groups).values()
        )

    def is_satisfied_for_good(self, gang: str) -> bool:
        """Returns True once the members of a gang need no others any more: its policy is once-satisfied, and a pod of
        its group was bound.
        """
        record = self._view.gangs.gangs.get(gang)
        return (
            record is not None
            and record.settings is not None
            and self.policy(record) == ONCE_SATISFIED
            and self.was_bound(gang)
        )

    def is_strict(self, gang: str) -> bool:
        """Returns True for a gang for which its group gives up all nodes when a member has none."""
        record = self._view.gangs.gangs.get(gang)
        return record is not None and record.settings is not None and record.settings.is_strict

    def policy(self, record: GangRecord) -> str:
        """Returns the match policy in force."""
        settings = record.settings
        return (settings.match_policy if settings is not None else "") or self.args.match_policy

    def waiting_ns(self, record: GangRecord) -> int:
        """Returns how long placed members wait for others."""
        return (record.settings.waiting_ns if record.settings is not None else 0) or self.args.waiting_ns

    def was_bound(self, gang: str) -> bool:
        """Returns True once a member of a gang, or of one of its group, was bound."""
        records = self._view.gangs.gangs
        settings = records[gang].settings
        groups = (gang,) if settings is None else settings.groups
        return any(records[other].was_bound for other in groups if other in records)

    # units

    def requirement(self, group: str, pods: Sequence[PodRecord]) -> Requirement:
        """Returns how many pods of each gang a unit needs.

        Pods beyond these are placed one by one, once the gangs are satisfied. Only `only-waiting` would never let them:
        they are placed with their unit, where they fit.
        """
        groups, gang_of = group.split(","), self._view.gangs.gang_of
        takes_all = any(self.policy(self._view.gangs.gangs[gang]) == ONLY_WAITING for gang in groups)
        return Requirement(self.needed(groups), {pod.uid: gang_of[pod.uid] for pod in pods}, takes_all)

    def gathers(self, group: str) -> bool:
        """Returns True for a group with wishes about network domains."""
        return self._spec(group.split(",")) is not None

    def gathering(self, group: str, pods: Sequence[PodRecord]) -> Gathering | None:
        """Returns the wishes of a unit about network domains, with the nodes of all placed members of its gangs."""
        groups = group.split(",")
        spec = self._spec(groups)
        if spec is None:
            return None
        gangs, there = self._view.gangs, self._view.pods
        order = {pod.uid: gangs.gangs[gangs.gang_of[pod.uid]].members[pod.uid].index for pod in pods}
        members = (there[uid] for gang in groups for uid in gangs.gangs[gang].members)
        assignments = (pod.assignment() for pod in members)
        return Gathering(spec, order, tuple(each.node for each in assignments if each is not None))

    # holds

    def holds(self, group: str) -> bool:
        """Returns True for a group of NonStrict gangs."""
        return not any(map(self.is_strict, group.split(",")))

    def is_still_complete(self, group: str) -> bool:
        """Returns True while the placed members satisfy all gangs of the group."""
        return self.is_complete(group.split(","))

    def held(self, group: str) -> list[PodRecord]:
        """Returns the members whose nodes are held, in the order of their uids."""
        uids = {uid for gang in group.split(",") for uid in self._held.get(gang, ())}
        return [self._view.pods[uid] for uid in sorted(uids)]

    def expired(self, now_ns: int) -> list[PodRecord]:
        """Returns the members whose waiting time is over, or whose node is gone, in the order of their uids."""
        nodes = self._view.nodes
        return [pod for pod, end_ns in self._ends() if end_ns <= now_ns or pod.placed_node not in nodes]

    def next_expiry_ns(self) -> int | None:
        """Returns the next time at which a waiting time is over; None without any."""
        return min((end_ns for _, end_ns in self._ends()), default=None)

    def _ends(self) -> Iterable[tuple[PodRecord, int]]:
        for gang, uids in sorted(self._held.items()):
            waiting_ns = self.waiting_ns(self._view.gangs.gangs[gang])
            for uid in sorted(uids):
                pod = self._view.pods[uid]
                yield pod, pod.placed_ns + waiting_ns

    def message(self, group: str, failure: UnitFailure) -> str:
        """Returns upstream's message of the members of a gang that could not be placed."""
        return (
            f'GangGroup "{group}" gets rejected due to member Pod "{failure.pod}" is unschedulable with reason '
            f'"{failure.message}", alreadyWaitForBound: {failure.placed}'
        )

    def starts(self, group: str, now_ns: int) -> tuple[GangStart, ...]:
        """Returns the gangs of a group of which no pod was bound before, by their ids."""
        gangs = {gang: self._view.gangs.gangs[gang] for gang in group.split(",")}
        waited = waited_ns(self._view, tuple(gangs), now_ns)
        return tuple(
            GangStart(gang, frozenset(record.members), waited, *classes_of(self._view, record))
            for gang, record in gangs.items()
            if not record.was_bound
        )

    def annotations(self, group: str, count: int) -> Mapping[str, str]:
        """Returns the annotations by which members that are bound together are recognised."""
        if count < 2:
            return {}
        return {**dict.fromkeys(BIND_GROUP, group), **dict.fromkeys(BIND_COUNT, str(count))}
