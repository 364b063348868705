"""Gangs in the State: the members of each gang, the settings that its pods declare, whether a member was ever bound, and
the last loss that left a gang with too few.

Settings in a PodGroup are in the State's objects. Source: spec/scheduler-workloads.md 2.1, 2.2.
"""

from collections.abc import Mapping
from sys import intern
from typing import Any

import msgspec
from msgspec.structs import replace

from shared.domain.gang import (
    EVICT,
    GangSettings,
    gang_of,
    gangs_that_end_together,
    settings_of_pod,
    settings_of_pod_group,
)
from shared.domain.network_topology import NO_INDEX, index_of
from shared.kube.pod import Pod

EVICTED, FAILED = "evicted", "failed"
_FAILED, _SUCCEEDED = "Failed", "Succeeded"


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A pod of a gang.

    Attributes:
        phase: as the API has it.
        is_bound: it has been observed on a node.
        owner: name of its controller, or of its first owner; empty without one.
        index: its place among the members, NO_INDEX without one.
        is_leaving: it is being deleted or was evicted.
    """

    phase: str
    is_bound: bool
    owner: str = ""
    index: int = NO_INDEX
    is_leaving: bool = False


class GangLoss(msgspec.Struct, frozen=True, array_like=True):
    """The loss of a member that left its gang with fewer than its minimum, so that the others are evicted.

    Attributes:
        pod_uid: the member.
        how: EVICTED or FAILED.
        left: number of members that were left.
        seq: `cluster` seq of the event; members that were created later belong to the gang's next start.
        at_ns: time of the event.
    """

    pod_uid: str
    how: str
    left: int
    seq: int
    at_ns: int


class GangRecord(msgspec.Struct, array_like=True):
    """A gang with a pod or a PodGroup.

    Attributes:
        members: uid -> pod, in no order that matters.
        declared: the settings of the first member that declares readable ones.
        pod_group: the settings of the PodGroup; None without one, or where its minimum is unreadable.
        has_pod_group: the PodGroup exists.
        was_bound: a member has been bound since the gang exists.
        changed_seq: `cluster` seq of the last change of settings, or of the last end of a member.
        complete_ns: instant of the record since which it has had as many members as its minimum; 0 while it has fewer.
        loss: the last one that left too few members; None without one.
    """

    members: dict[str, Member] = {}
    declared: GangSettings | None = None
    pod_group: GangSettings | None = None
    has_pod_group: bool = False
    was_bound: bool = False
    changed_seq: int = 0
    complete_ns: int = 0
    loss: GangLoss | None = None

    @property
    def settings(self) -> GangSettings | None:
        """The settings in force; None while the gang has none, and is not placed."""
        return self.pod_group if self.has_pod_group else self.declared


class GangRecords:
    """A fold over the pods and PodGroups of `cluster`.

    Attributes:
        gangs: id -> record.
        gang_of: uid -> id of its gang, of pods that have one.
        dirty: ids of gangs that changed since a cache last read them; None while there is no cache.
    """

    def __init__(self) -> None:
        self.gangs: dict[str, GangRecord] = {}
        self.gang_of: dict[str, str] = {}
        self.dirty: dict[str, None] | None = None

    def observe_pod(self, uid: str, pod: Pod, seq: int, at_ns: int) -> None:
        """Counts a pod in its gang. Where it has failed for good, the policy of its group decides about the others."""
        metadata = pod.metadata
        gang = gang_of(metadata)
        if uid in self.gang_of and self.gang_of[uid] != gang:
            self.lose_pod(uid, seq, at_ns)
        if not gang:
            return
        record = self._record(gang)
        is_bound, before = bool(pod.spec.node_name), record.members.get(uid)
        is_leaving = metadata.deletion_timestamp is not None or (before is not None and before.is_leaving)
        member = Member(intern(pod.status.phase), is_bound, _owner(pod), index_of(metadata.annotations), is_leaving)
        if member != before:
            record.members[uid] = member
            self.gang_of[uid] = intern(gang)
            self._mark(gang)
        if record.declared is None and not record.has_pod_group:
            record.declared = settings_of_pod(gang, metadata.labels, metadata.annotations)
            if record.declared is not None:
                record.changed_seq = seq
        if is_bound and not record.was_bound:
            record.was_bound, record.changed_seq = True, seq
        _note_complete(record, at_ns)
        fails = member.phase == _FAILED and before is not None and before.is_bound and before.phase != _FAILED
        if fails and not is_leaving and self.failure_policy(gang) == EVICT:
            left = sum(
                each.is_bound and each.phase != _FAILED and not each.is_leaving for each in record.members.values()
            )
            self._note_loss(record, GangLoss(uid, FAILED, left, seq, at_ns))

    def observe_eviction(self, uid: str, seq: int, at_ns: int) -> None:
        """Notes that another service or a node agent had a pod evicted."""
        gang = self.gang_of.get(uid)
        if gang is None:
            return
        record = self.gangs[gang]
        ran = is_running(record.members[uid])
        record.members[uid] = replace(record.members[uid], is_leaving=True)
        if ran:
            self._note_loss(record, GangLoss(uid, EVICTED, sum(map(is_running, record.members.values())), seq, at_ns))
        self._mark(gang)

    def failure_policy(self, gang: str) -> str:
        """Returns the first policy that a gang of its group declares; empty without one."""
        there = (self.gangs[other].settings for other in self.group_of(gang) if other in self.gangs)
        return next((each.failure_policy for each in there if each is not None and each.failure_policy), "")

    def group_of(self, gang: str) -> tuple[str, ...]:
        """Returns the ids of the gangs with which a gang ends, its own included."""
        return gangs_that_end_together(gang, self._settings_of)

    def _settings_of(self, gang: str) -> GangSettings | None:
        return self.gangs[gang].settings if gang in self.gangs else None

    def lose_pod(self, uid: str, seq: int, at_ns: int) -> None:
        """Removes a pod that was deleted."""
        gang = self.gang_of.pop(uid, None)
        if gang is None:
            return
        record = self.gangs[gang]
        del record.members[uid]
        record.changed_seq = seq
        _note_complete(record, at_ns)
        self._settled(gang)

    def observe_pod_group(self, gang: str, pod_group: Mapping[str, Any], seq: int, at_ns: int) -> None:
        """Takes the settings of a PodGroup; they replace those that pods declare."""
        record, settings = self._record(gang), settings_of_pod_group(gang, pod_group)
        if not record.has_pod_group or record.pod_group != settings:
            record.has_pod_group, record.pod_group, record.declared, record.changed_seq = True, settings, None, seq
            _note_complete(record, at_ns)
        self._mark(gang)

    def lose_pod_group(self, gang: str, seq: int, at_ns: int) -> None:
        """Removes a deleted PodGroup: its gang begins anew, with the members that there are."""
        record = self.gangs.get(gang)
        if record is None or not record.has_pod_group:
            return
        record.has_pod_group, record.pod_group, record.changed_seq = False, None, seq
        record.was_bound = False
        _note_complete(record, at_ns)
        self._settled(gang)

    def encode(self) -> list[tuple[str, GangRecord]]:
        """Returns all records, sorted by id, with members sorted by uid."""
        return [
            (gang, replace(self.gangs[gang], members=dict(sorted(self.gangs[gang].members.items()))))
            for gang in sorted(self.gangs)
        ]

    def restore(self, kept: list[tuple[str, GangRecord]]) -> None:
        """Restores the result of `encode`."""
        self.gangs = dict(kept)
        self.gang_of = {uid: intern(gang) for gang, record in kept for uid in record.members}

    def _note_loss(self, record: GangRecord, loss: GangLoss) -> None:
        if record.settings is not None and loss.left < record.settings.minimum:
            record.loss = loss

    def _record(self, gang: str) -> GangRecord:
        record = self.gangs.get(gang)
        if record is None:
            record = self.gangs[intern(gang)] = GangRecord()
        return record

    def _settled(self, gang: str) -> None:
        record = self.gangs[gang]
        if not record.members and not record.has_pod_group:
            del self.gangs[gang]
        self._mark(gang)

    def _mark(self, gang: str) -> None:
        if self.dirty is not None:
            self.dirty[gang] = None


def _note_complete(record: GangRecord, at_ns: int) -> None:
    """Notes since when a gang has as many members as its minimum."""
    settings = record.settings
    if settings is None or len(record.members) < settings.minimum:
        record.complete_ns = 0
    elif not record.complete_ns:
        record.complete_ns = at_ns


def is_running(member: Member) -> bool:
    """Returns True for a member that is on a node, has not ended, and is not about to leave."""
    return member.is_bound and member.phase not in (_FAILED, _SUCCEEDED) and not member.is_leaving


def _owner(pod: Pod) -> str:
    owners = pod.metadata.owner_references
    if not owners:
        return ""
    return intern(next((owner.name for owner in owners if owner.controller), owners[0].name))
