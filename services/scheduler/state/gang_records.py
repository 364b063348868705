"""Gangs in the State: the members of each gang, the settings that its pods declare, and whether a member was ever bound.

Settings in a PodGroup are in the State's objects. Source: spec/scheduler-workloads.md 2.1, 2.2.
"""

from collections.abc import Mapping
from sys import intern
from typing import Any

import msgspec
from msgspec.structs import replace

from shared.domain.gang import GangSettings, gang_of, settings_of_pod, settings_of_pod_group
from shared.domain.network_topology import NO_INDEX, index_of
from shared.kube.pod import Pod


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A pod of a gang.

    Attributes:
        phase: as the API has it.
        is_bound: it has been observed on a node.
        owner: name of its controller, or of its first owner; empty without one.
        index: its place among the members, NO_INDEX without one.
    """

    phase: str
    is_bound: bool
    owner: str = ""
    index: int = NO_INDEX


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
    """

    members: dict[str, Member] = {}
    declared: GangSettings | None = None
    pod_group: GangSettings | None = None
    has_pod_group: bool = False
    was_bound: bool = False
    changed_seq: int = 0
    complete_ns: int = 0

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
        """Counts a pod in its gang."""
        metadata = pod.metadata
        gang = gang_of(metadata.namespace, metadata.labels, metadata.annotations)
        if uid in self.gang_of and self.gang_of[uid] != gang:
            self.lose_pod(uid, seq, at_ns)
        if not gang:
            return
        record = self._record(gang)
        is_bound, before = bool(pod.spec.node_name), record.members.get(uid)
        member = Member(intern(pod.status.phase), is_bound, _owner(pod), index_of(metadata.annotations))
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


def _owner(pod: Pod) -> str:
    owners = pod.metadata.owner_references
    if not owners:
        return ""
    return intern(next((owner.name for owner in owners if owner.controller), owners[0].name))
