"""Gangs: recorded scenarios of upstream's extension points, driven through the State and the grouping of the scheduler.

Upstream tries the members of a gang one after the other and holds their nodes at Permit; the scheduler decides about
all of them in one cycle. So each step of upstream becomes the record that this system has for its effect: a permitted
pod is a placement that is held, or bound once its gang is complete; a pod that is given up is released. Compared is
what the scheduler makes of these records: the members by what they do, the settings of a gang, whether a pod may be
tried, whether its gang is complete, which others go with it, its message, and its annotations.

A unit takes one place in the queue: that of the first member that enters it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cli.parity.runners.scheduler.gang_world import NODES, GangWorld, key_of
from cli.parity.runners.scheduler.recorded_cluster import incoming
from cli.parity.upstream.gang_quirks import Quirk, Quirks
from services.scheduler.cycle.pod_scheduled_condition import message
from services.scheduler.framework.gang_grouping_interface import UnitFailure
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.domain.gang import BIND_COUNT, BIND_GROUP
from shared.events.scheduling import ClassEvaluated, Rejections
from shared.kube.instants import SECOND
from shared.kube.resource_names import POD_GROUPS


class _Attempt:
    """A unit that is being tried.

    Attributes:
        gang: of the member with which it began.
        tried: names of the members so far.
        failure: the message of the first one that failed; empty before.
    """

    def __init__(self, gang: str, group: str, first: str) -> None:
        self.gang, self.group = gang, group
        self.tried = {first}
        self.failure = ""


class Scenario(GangWorld):
    """The gangs of a scenario, and the attempt in progress."""

    def __init__(self, args: Mapping[str, Any], quirks: Quirks = frozenset()) -> None:
        """Starts a scheduler with CoschedulingArgs, and with quirks of upstream."""
        super().__init__(args, quirks)
        self._entered: dict[str, str] = {}  # group -> the member that has its place in the queue
        self._attempt: _Attempt | None = None
        self._together: dict[str, frozenset[str]] = {}  # uid -> uids of the pods that are bound together

    def step(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Applies an event; returns its result with the changes of gangs."""
        kind = event["type"]
        result: Mapping[str, Any] = {}
        if kind in ("podAdd", "podUpdate"):
            self._change(incoming(event["pod"]))
        elif kind in ("podGroupAdd", "podGroupUpdate"):
            self._cluster.observe_object(POD_GROUPS, event["podGroup"])
            self._note_pod_group(key_of(event["podGroup"]))
        elif kind == "podGroupDelete":
            self._lose_pod_group(key_of(event["podGroup"]))
        elif kind == "nextPod":
            result = self._next()
        elif kind == "podDelete":
            self._cluster.delete_pod(self._pods.pop(event["pod"]))
            self._second_stage.pop(event["pod"], None)
        elif kind == "postBind" and self._pods[event["pod"]].metadata.uid in self._engine.view.pods:
            pod = self._pods[event["pod"]]
            self._second_stage.pop(event["pod"], None)
            self._observe(replace(pod, spec=replace(pod.spec, node_name=NODES[0])))
        else:
            record = self._engine.view.pods.get(self._pods[event["pod"]].metadata.uid)
            result = self._of_pod(kind, record, event.get("nodes")) if record is not None else _FORGOTTEN.get(kind, {})
        self._engine.cache.settle()
        changes = self._changes()
        return {**result, **({"gangs": changes} if changes else {})}

    def _of_pod(self, kind: str, record: PodRecord, nodes: Mapping[str, str] | None) -> dict[str, Any]:
        match kind:
            case "preEnqueue":
                return {"ok": True} if self._enters(record) else {}
            case "beforePreFilter":
                return {"ok": True} if self._begins(record) else {}
            case "permit":
                return self._permit(record)
            case "unreserve":
                return self._unreserve(record)
            case "afterPostFilter":
                return self._refuse(record, nodes)
            case "preBind":
                return self._annotations(record)
        raise AssertionError(f"no event of type {kind} is known")

    # the queue

    def _enters(self, record: PodRecord) -> bool:
        """The pod enters the queue: it may be tried, and no other member has the place of its unit."""
        groups = self._groups_of(record)
        if not groups or self._is_satisfied(record):
            return True
        group, pending, attempt = ",".join(groups), self._members(groups, "pending"), self._attempt
        is_late = attempt is not None and attempt.group == group and record.name not in attempt.tried
        if not self._may_be_tried(record, groups) or is_late or record.name not in pending:
            return False
        if self._entered.get(group) not in pending:
            self._entered[group] = record.name
        return self._entered[group] == record.name

    def _begins(self, record: PodRecord) -> bool:
        """A cycle tries the pod: the first one of its unit, or a next one while none before it has failed."""
        groups = self._groups_of(record)
        if not groups or self._is_satisfied(record):
            return True
        if not self._may_be_tried(record, groups):
            return False
        if self._attempt is None:
            self._attempt = _Attempt(self._gang_of(record), ",".join(groups), record.name)
            self._entered.pop(self._attempt.group, None)
        return not self._attempt.failure

    def _may_be_tried(self, record: PodRecord, groups: Sequence[str]) -> bool:
        group = ",".join(groups)
        if Quirk.TOO_FEW_TO_PLACE in self._quirks:
            held_back = any(self._gangs.missing(groups)) or self._gang_of(record) not in groups
        else:
            held_back = self._gangs.of(record).held_back is not None
        if held_back and self._entered.get(group) == record.name:
            del self._entered[group]  # its place is free
        return not held_back

    def _next(self) -> dict[str, Any]:
        """The members of the attempted unit that are still to be tried; without one, those with a node give it up."""
        attempt = self._attempt
        if attempt is None:
            return {}
        groups = attempt.group.split(",")
        left = [name for name in self._members(groups, "pending") if name not in attempt.tried]
        if left and attempt.gang in self._engine.view.gangs.gangs:
            attempt.tried.add(left[0])
            return {"taken": left[0]}
        self._attempt = None
        return self._reject_holding(groups)

    # nodes

    def _permit(self, record: PodRecord) -> dict[str, Any]:
        """The pod is placed: its node is held, unless its gang is complete with it."""
        groups = self._groups_of(record)
        if not groups:
            return {"code": "Success", "notGang": True}
        if record.name in self._second_stage:
            self._second_stage[record.name] = "placed"
            return {"code": "Success"}
        self._rejected.discard(record.name)
        self._place(record, is_held=True)
        if not self._gangs.is_complete(groups):
            gang = self._engine.view.gangs.gangs[self._gang_of(record)]
            return {"code": "Wait", "waitSeconds": self._gangs.waiting_ns(gang) // SECOND}
        together = self._holding(groups)
        for name in together:
            self._place(self._record_of(name), is_held=False)
        self._remember(record, together, groups)
        self._attempt = None
        return {"code": "Success", **_named("allowedWaiting", [name for name in together if name != record.name])}

    def _remember(self, record: PodRecord, together: Sequence[str], groups: Sequence[str]) -> None:
        """Notes the members that are bound together."""
        if Quirk.FORGOTTEN_UNIT in self._quirks:
            placed = self._members(groups, "placed")
            if not any(self._record_of(name).uid in self._together for name in placed):
                together = placed
        records = [self._record_of(name) for name in together]
        uids = frozenset(each.uid for each in records)
        own = self._records.of(self._gang_of(record))
        for each in records:
            if Quirk.GROUP_RECORD not in self._quirks or self._records.of(self._gang_of(each)) == own:
                self._together[each.uid] = uids

    def _unreserve(self, record: PodRecord) -> dict[str, Any]:
        """The node of the pod is released; a Strict gang that is not complete gives up all that it holds."""
        self._together.pop(record.uid, None)
        self._release(record)
        return self._reject_others(record)

    def _refuse(self, record: PodRecord, nodes: Mapping[str, str] | None) -> dict[str, Any]:
        """The pod is refused: by all nodes, or with its unit."""
        groups, attempt = self._groups_of(record), self._attempt
        if not groups or self._is_satisfied(record):
            return {"code": "Unschedulable"}
        if attempt is not None and not attempt.failure:
            placed, rejected = sum(self._gangs.counts(gang).placed for gang in groups), len(nodes or ())
            lack = Rejections(plugin="NodeResourcesFit", code="InsufficientResource", nodes=rejected, detail="cpu")
            refused = ClassEvaluated(nodes=len(NODES), feasible=0, rejected=(lack,) if rejected else ())
            words = message(refused, self._cluster.profile.texts)
            if not rejected and Quirk.TOO_FEW_TO_PLACE in self._quirks:
                words = words.removesuffix(".") + ":"
            failure = UnitFailure(record.name, words, placed)
            attempt.failure = self._gangs.message(attempt.group, failure)
        if Quirk.FORGOTTEN_UNIT in self._quirks and self._gangs.is_strict(self._gang_of(record)):
            for name in self._members(groups, "placed"):
                self._together.pop(self._record_of(name).uid, None)
        failed = {"failedMessage": attempt.failure} if attempt is not None and attempt.failure else {}
        return {"code": "Unschedulable", **failed, **self._reject_others(record)}

    def _reject_others(self, record: PodRecord) -> dict[str, list[str]]:
        """The members of a Strict gang that is not satisfied lose their nodes, because this one has none."""
        groups = self._groups_of(record)
        if not groups or self._is_satisfied(record) or not self._gangs.is_strict(self._gang_of(record)):
            return {}
        return self._reject_holding(groups)

    def _reject_holding(self, groups: Sequence[str]) -> dict[str, list[str]]:
        holding = self._holding(groups)
        self._rejected.update(holding)
        return _named("rejectedWaiting", holding)

    def _annotations(self, record: PodRecord) -> dict[str, Any]:
        groups, together = self._groups_of(record), self._together.get(record.uid, frozenset())
        written = self._gangs.annotations(",".join(groups), len(together)) if groups else {}
        if not written:
            return {"gangGroupId": None}
        return {"gangGroupId": written[BIND_GROUP[0]], "memberCount": int(written[BIND_COUNT[0]])}


_FORGOTTEN: Mapping[str, Mapping[str, Any]] = {
    "permit": {"code": "Unschedulable"},
    "afterPostFilter": {"code": "Unschedulable"},
    "preBind": {"gangGroupId": None},
}
"""Results of upstream's for a pod that its gang has forgotten."""


def scenario(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Runs one scenario."""
    run = Scenario(given["args"], quirks)
    return {"events": [run.step(event) for event in given["events"]]}


def _named(name: str, pods: list[str]) -> dict[str, list[str]]:
    return {name: pods} if pods else {}
