"""Invariant: no part of a Strict gang is placed, and so none is bound, before its minimum is."""

from collections.abc import Callable
from typing import Any

import msgspec

from cli.dev.fault_simulation.cluster_objects import NAMESPACE
from cli.dev.fault_simulation.memory_api import ApiServer, Body
from cli.dev.fault_simulation.memory_log import Row
from shared.domain.gang import POD_GROUP_LABEL
from shared.events.cluster import BindFailed, BindRejected, ObjectDeleted, ObjectObserved, PodDeleted, PodObserved
from shared.events.scheduling import CycleDecided, PodPlaced
from shared.kube import resource_names

_PLACED, _DELETED, _CYCLE, _OBSERVED, _OBJECT, _GONE = (
    kind.type_name() for kind in (PodPlaced, PodDeleted, CycleDecided, PodObserved, ObjectObserved, ObjectDeleted)
)
_REFUSED = frozenset(kind.type_name() for kind in (BindRejected, BindFailed))


class _Fields(msgspec.Struct):
    pod_uid: str = ""
    resource: str = ""
    name: str = ""
    seen: dict[str, int] | None = None


class GangInvariant:
    """The placements of the members of gangs.

    A gang is satisfied once the log has a member on its node: members that are re-created, or whose binding failed, are
    placed one by one then. Before that, a cycle places so many members that with those that are placed, and of which it
    has not read that they are refused or gone, there are as many as the minimum; also of a NonStrict gang, of which
    members hold nodes until then. When its PodGroup is deleted a gang begins anew, until a bound member is observed
    again: one that is deleted while the gateway sees nothing does not count. It also begins anew once the log has
    neither a PodGroup nor a member of it.
    """

    def __init__(self, api: ApiServer, report: Callable[[str], None]) -> None:
        self._api = api
        self._report = report
        self._gangs: dict[str, str] = {}  # uid of a member -> its PodGroup
        self._satisfied: dict[str, None] = {}
        self._members: dict[str, dict[str, None]] = {}  # gang -> uids of its members, by the log
        self._pod_groups: dict[str, None] = {}  # gangs with a PodGroup, by the log
        self._placed: dict[str, str] = {}  # uid of a member -> cause of its newest placement
        self._refused: dict[str, int] = {}  # cause of a placement -> `cluster` seq of its refusal
        self._gone: dict[str, int] = {}  # uid -> `cluster` seq of its deletion
        self._began_anew: dict[str, int] = {}  # gang -> `cluster` seq of the last deletion of its PodGroup
        self._saw = 0

    def is_satisfied(self, gang: str) -> bool:
        """Reports whether the log has a member of a gang on its node, since its PodGroup was deleted last."""
        return gang in self._satisfied

    def pod_changed(self, after: Body) -> None:
        """Notes the gang of a pod."""
        gang = gang_of(after)
        if gang:
            self._gangs[after["metadata"]["uid"]] = gang

    def appended(self, context: str, rows: list[Row]) -> None:
        """Checks the placements of a commit."""
        if context == "cluster":
            self._note_outcomes(rows)
        elif context == "scheduling":
            placed: dict[str, str] = {}  # gang -> cause of its first placement here
            for row in rows:
                if row.type not in (_PLACED, _CYCLE):
                    continue
                fields = msgspec.json.decode(row.data, type=_Fields)
                if row.type == _CYCLE:
                    self._saw = (fields.seen or {}).get("cluster", 0)
                elif fields.pod_uid in self._gangs:
                    cause = self._placed[fields.pod_uid] = f"{context}/{row.seq}"
                    placed.setdefault(self._gangs[fields.pod_uid], cause)
            for gang, cause in placed.items():
                self._check(gang, cause)

    def _note_outcomes(self, rows: list[Row]) -> None:
        for row in rows:
            if row.type in _REFUSED and row.cause is not None:
                self._refused[row.cause] = row.seq
            elif row.type == _DELETED:
                self._note_end(msgspec.json.decode(row.data, type=_Fields).pod_uid, row.seq)
            elif row.type in (_OBJECT, _GONE):
                fields = msgspec.json.decode(row.data, type=_Fields)
                if fields.resource == resource_names.POD_GROUPS:
                    self._note_pod_group(fields.name, row)
            elif row.type == _OBSERVED:
                uid = msgspec.json.decode(row.data, type=_Fields).pod_uid
                if (gang := self._gangs.get(uid)) is not None:
                    self._members.setdefault(gang, {})[uid] = None
                    if b'"nodeName"' in row.data:
                        self._satisfied[gang] = None

    def _note_end(self, uid: str, seq: int) -> None:
        self._gone[uid] = seq
        gang = self._gangs.get(uid, "")
        members = self._members.get(gang, {})
        members.pop(uid, None)
        if not members and gang not in self._pod_groups:
            self._satisfied.pop(gang, None)

    def _note_pod_group(self, gang: str, row: Row) -> None:
        if row.type == _OBJECT:
            self._pod_groups[gang] = None
            return
        self._pod_groups.pop(gang, None)
        self._satisfied.pop(gang, None)
        self._began_anew[gang] = row.seq

    def _check(self, gang: str, cause: str) -> None:
        pod_group = self._api.objects[resource_names.POD_GROUPS].get(gang)
        if pod_group is None or gang in self._satisfied or self._saw < self._began_anew.get(gang, 0):
            return
        after_all = self._saw + 1
        together = [
            uid
            for uid, of in self._gangs.items()
            if of == gang
            and uid in self._placed
            and self._refused.get(self._placed[uid], after_all) > self._saw
            and self._gone.get(uid, after_all) > self._saw
        ]
        minimum = pod_group["spec"]["minMember"]
        if len(together) < minimum:
            self._report(f"{cause} makes {len(together)} members of {gang} that are placed; it needs {minimum}")


def gang_of(pod: Body) -> str:
    """Returns the key of a pod's PodGroup; empty without one."""
    labels: dict[str, Any] = pod["metadata"].get("labels", {})
    return f"{NAMESPACE}/{labels[POD_GROUP_LABEL]}" if POD_GROUP_LABEL in labels else ""
