"""The gangs of a recorded scenario in a scheduler: pods and PodGroups are observed, placed, released and reported."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cli.parity.runners.scheduler.recorded_cluster import PROFILE, Cluster
from cli.parity.runners.scheduler.recorded_gang import RecordedGang, recorded_gang
from cli.parity.upstream.gang_quirks import GroupRecords, Quirk, Quirks, UpstreamGangs
from services.scheduler.plugins.coscheduling.gang_placement_units import GangGrouping
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.events import Cause, Event
from shared.events.cluster import BindRejected, ObjectDeleted, PodDeleted
from shared.events.scheduling import CycleDecided, PlacementReleased, PlacementReserved, PodOutcome, PodPlaced
from shared.kube.pod import ENDED_PHASES, Pod
from shared.kube.resource_names import POD_GROUPS

NAME = "Coscheduling"
NODES = ("n0", "n1")


class GangWorld:
    """A scheduler with two nodes, and its gangs as last reported."""

    def __init__(self, args: Mapping[str, Any], quirks: Quirks = frozenset()) -> None:
        """Starts a scheduler with CoschedulingArgs, and with quirks of upstream."""
        self._quirks = quirks
        self._cluster = Cluster([NAME, "NodeResourcesFit"], {NAME: args})
        self._engine = self._cluster.engine
        for name in NODES:
            self._cluster.observe_node({"metadata": {"name": name}, "status": {"allocatable": {"pods": "1000"}}})
        grouping = self._engine.cache.groupings[PROFILE][NAME]
        assert isinstance(grouping, GangGrouping)
        self._records = GroupRecords()
        self._gangs = grouping
        if Quirk.GROUP_RECORD in quirks:
            self._gangs = UpstreamGangs(self._engine.view, grouping.args, self._records.is_satisfied)
        self._pods: dict[str, Pod] = {}  # namespace/name -> as last observed
        self._second_stage: dict[str, str] = {}  # bound pod that an update names without its node -> its stage with it
        self._forgotten: dict[str, str] = {}  # holding pod of a deleted PodGroup -> its gang
        self._rejected: set[str] = set()  # members whose held nodes are about to be released
        self._reported: dict[str, RecordedGang] = {}

    def _change(self, pod: Pod) -> None:
        has_ended = pod.status.phase in ENDED_PHASES
        if has_ended and pod.metadata.key in self._pods and Quirk.ENDED_MEMBER in self._quirks:
            return
        self._observe(pod)

    def _observe(self, pod: Pod) -> None:
        """Observes a pod that came or changed; no update takes its node away, as no API server does."""
        before = self._pods.get(pod.metadata.key)
        if before is not None and before.spec.node_name and not pod.spec.node_name:
            if Quirk.NODE_TAKEN_AWAY in self._quirks:
                self._second_stage[pod.metadata.key] = "pending"
            pod = replace(pod, spec=replace(pod.spec, node_name=before.spec.node_name))
        self._pods[pod.metadata.key] = pod
        self._cluster.observe_pod(pod)
        view = self._engine.view
        if gang := view.gangs.gang_of.get(pod.metadata.uid):
            self._records.observe_pod(gang, self._groups_of(view.pods[pod.metadata.uid]), pod)

    def _note_pod_group(self, gang: str) -> None:
        self._engine.cache.settle()
        record = self._engine.view.gangs.gangs[gang]
        if record.settings is not None:
            returns_early = len(record.members) >= record.settings.minimum and not self._gangs.counts(gang).pending
            self._records.observe_pod_group(gang, record.settings.groups, returns_early=returns_early)

    def _lose_pod_group(self, gang: str) -> None:
        """Observes that a PodGroup is gone."""
        self._cluster.observe(ObjectDeleted(resource=POD_GROUPS, name=gang, uid=gang))
        if Quirk.DELETED_POD_GROUP in self._quirks and gang in self._engine.view.gangs.gangs:
            record = self._engine.view.gangs.gangs[gang]
            self._forgotten |= {
                self._engine.view.pods[uid].name: gang for uid in record.members if self._engine.view.pods[uid].hold
            }
            for uid in list(record.members):
                self._cluster.observe(PodDeleted(pod=self._engine.view.pods[uid].name, pod_uid=uid))

    # gangs

    def _record_of(self, name: str) -> PodRecord:
        return self._engine.view.pods[self._pods[name].metadata.uid]

    def _gang_of(self, record: PodRecord) -> str:
        return self._engine.view.gangs.gang_of.get(record.uid, "")

    def _groups_of(self, record: PodRecord) -> tuple[str, ...]:
        """Returns the ids of the gangs that are placed with a pod; none for a pod without a gang."""
        gang = self._gang_of(record)
        if not gang:
            return ()
        settings = self._engine.view.gangs.gangs[gang].settings
        return (gang,) if settings is None else settings.groups

    def _is_satisfied(self, record: PodRecord) -> bool:
        """Returns True for a pod whose gang needs no other, because one was bound before."""
        return self._gangs.is_satisfied_for_good(self._gang_of(record))

    def _members(self, groups: Sequence[str], stage: str) -> list[str]:
        view = self._engine.view
        names = [
            view.pods[uid].name
            for gang in groups
            if gang in view.gangs.gangs
            for uid, member in view.gangs.gangs[gang].members.items()
            if stage in (self._gangs.stage(uid, member), self._second_stage.get(view.pods[uid].name))
        ]
        return sorted(names)

    def _holding(self, groups: Sequence[str]) -> list[str]:
        """Returns the members whose nodes are held and not bound."""
        names = self._members(groups, "placed") + [pod for pod, gang in self._forgotten.items() if gang in groups]
        return [
            name
            for name in names
            if name not in self._rejected and (name in self._forgotten or self._record_of(name).hold)
        ]

    def _changes(self) -> dict[str, Any]:
        view = self._engine.view
        present = {gang: recorded_gang(view, self._gangs, gang, self._second_stage) for gang in view.gangs.gangs}
        changes: dict[str, Any] = {gang: None for gang in self._reported if gang not in present}
        for gang, now in present.items():
            before = self._reported.get(gang, {})
            if changed := {name: value for name, value in now.items() if before.get(name) != value}:
                changes[gang] = changed
        for gang in self._reported.keys() - present.keys():
            self._records.forget(gang)
        self._reported = present
        return changes

    # nodes

    def _place(self, record: PodRecord, *, is_held: bool) -> None:
        cycle, seen = self._engine.view.cycle + 1, dict(self._engine.view.positions)
        outcome = PodOutcome(pod_uid=record.uid, class_index=0, node=NODES[0])
        placed: Event = PodPlaced(pod_uid=record.uid, pod=record.name, node=NODES[0], cycle=cycle, request={})
        if is_held:
            placed = PlacementReserved(
                holder_uid=record.uid, holder=record.name, kind="Pod", node=NODES[0], cycle=cycle, waits_for="unit",
                request={},
            )  # fmt: skip
        for event in (CycleDecided(cycle=cycle, pods=(outcome,), seen=seen, now_ns=0), placed):
            self._engine.append("scheduling", event, 0)
        self._engine.cache.settle()

    def _release(self, record: PodRecord) -> None:
        if record.hold is not None:
            released = PlacementReleased(
                holder_uid=record.uid, holder=record.name, kind="Pod", node=NODES[0], reason="given up"
            )
            self._engine.append("scheduling", released, 0)
        elif record.is_placed():
            refused = BindRejected(pod_uid=record.uid, pod=record.name, reason="given up")
            self._engine.append("cluster", refused, 0, Cause("scheduling", record.placed_seq))
        self._engine.cache.settle()


def key_of(raw: Mapping[str, Any]) -> str:
    """Returns `namespace/name` of an object."""
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
