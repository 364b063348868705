"""A fold from the oldest kept event gives the scheduler, and the gateway of its intents, what the live States decide by."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.service import SERVICE as GATEWAY
from services.scheduler.service import SERVICE as SCHEDULER
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Event
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.intents import FieldsDesired
from shared.events.scheduling import (
    ClassEvaluated,
    CycleDecided,
    PlacementReleased,
    PlacementReserved,
    PodNominated,
    PodOutcome,
    Rejections,
    UnitStartPlanned,
)
from shared.kube.storage import SELECTED_NODE
from tests.property.test_retained_folds import NODES, Histories, grown
from tests.support.hypothesis_examples import examples

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
REFUSED = ClassEvaluated(2, 0, rejected=(Rejections("NodeResourcesFit", "InsufficientResource", nodes=2),))


class SchedulingHistories(Histories):
    """Pods wait, hold nodes and give them up; claims and volumes come, go and come back, and are bound."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.objects: dict[tuple[str, str], str] = {}
        self.waiting: list[str] = []
        self.held: list[str] = []
        self.cycle = 0

    def steps(self) -> Sequence[Callable[[], None]]:
        return (self.pending, self.pending, self.object, self.schedule, self.schedule, self.schedule, self.end)

    def pending(self) -> None:
        """A pod comes or goes."""
        if self.waiting and self.random.random() < 0.4:
            name = self.waiting.pop(self.random.randrange(len(self.waiting)))
            self.held = [each for each in self.held if each != name]
            self.cluster.no_pod(name, self.at_s)
            return
        self.numbers += 1
        self.waiting.append(f"w{self.numbers}")
        self.cluster.pod(self.waiting[-1], node="", phase="Pending", at_s=self.at_s)

    def object(self) -> None:
        """A claim or a volume comes, or goes."""
        resource, name = self.random.choice(((CLAIMS, "d/c0"), (CLAIMS, "d/c1"), (VOLUMES, "v0"), (VOLUMES, "v1")))
        uid = self.objects.pop((resource, name), "")
        if uid and self.random.random() < 0.5:
            self.append("cluster", ObjectDeleted(resource=resource, name=name, uid=uid))
            return
        self.numbers += not uid
        self.objects[resource, name] = uid = uid or f"uid-{self.numbers}"
        body = {"metadata": {"name": name.rpartition("/")[2], "uid": uid}, "spec": {}}
        self.append("cluster", ObjectObserved(resource=resource, name=name, uid=uid, object=body))

    def schedule(self) -> None:
        """The scheduler decides something in a cycle."""
        self.cycle += 1
        decided = [*self._of_pods(), *self._of_objects()]
        outcomes = tuple(
            PodOutcome(each.pod_uid, 0, "") for each in decided if isinstance(each, PodNominated) and each.victims
        )
        seen = {"cluster": self.cluster.state.positions.get("cluster", 0)}
        cycle = CycleDecided(cycle=self.cycle, seen=seen, pods=outcomes, classes=(REFUSED,), now_ns=self.now_ns)
        for event in (cycle, *decided):
            self.append("scheduling", event)

    def _of_pods(self) -> list[Event]:
        if self.random.random() < 0.1:
            nodes = {"uid-x": "n"} if self.random.random() < 0.5 else {}
            unit = self.random.choice(("d/a", "d/b"))
            return [UnitStartPlanned(unit=unit, scheduler="s", plugin="p", cycle=self.cycle, nodes=nodes)]
        if not self.waiting:
            return []
        name, node = self.random.choice(self.waiting), self.random.choice(NODES)
        uid, key = f"uid-{name}", f"d/{name}"
        if name in self.held:
            self.held.remove(name)
            return [PlacementReleased(holder_uid=uid, holder=key, kind="Pod", node=node, reason="r")]
        if self.random.random() < 0.5:
            self.held.append(name)
            return [
                PlacementReserved(
                    holder_uid=uid, holder=key, kind="Pod", node=node, cycle=self.cycle, waits_for="unit", request={}
                )
            ]
        is_lost = self.random.random() < 0.2
        victims = () if is_lost else ("uid-victim",)
        return [PodNominated(pod_uid=uid, pod=key, cycle=self.cycle, node="" if is_lost else node, victims=victims)]

    def _of_objects(self) -> list[Event]:
        if not self.objects or self.random.random() < 0.3:
            return []
        resource, name = self.random.choice(sorted(self.objects))
        patch: dict[str, Any] = {"metadata": {"annotations": {SELECTED_NODE: self.random.choice((*NODES, None))}}}
        if resource == VOLUMES:
            patch = {"spec": {"claimRef": {"namespace": "d", "name": self.random.choice(("c0", "c1"))}}}
        uid = self.objects[resource, name]
        return [FieldsDesired(resource=resource, name=name, fields="volumes", patch=patch, uid=uid)]


def decided_by(state: SchedulerState) -> dict[str, Any]:
    """Returns what decisions rest on, of pods and volumes that are there."""
    state.read()
    pods = {}
    for uid, pod in state.pods.items():
        assigned = pod.assignment()
        pods[uid] = (assigned and assigned.node, pod.hold is not None, pod.nominated)
    volumes = {name: body["metadata"]["uid"] for name, body in state.objects.get(VOLUMES, {}).items()}
    return {
        "pods": pods,
        "chosen": {name: state.chosen.get(uid) for name, uid in volumes.items()},
        "planned": state.planned_starts,
        "released": state.hold_released_seq,
    }


def retried(state: SchedulerState) -> dict[tuple[str, int], bool]:
    """Returns for each refused pod and its last attempt whether capacity that was kept has been released since."""
    return {
        (uid, pod.attempt.seq): state.hold_released_seq > pod.attempt.saw_released
        for uid, pod in state.pods.items()
        if pod.attempts
    }


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(60))
def test_a_fold_from_the_oldest_kept_event_decides_as_the_live_state(seed: int) -> None:
    random = Random(seed)
    log = grown(random, SchedulingHistories(random), (GATEWAY, SCHEDULER))
    anew, live = log.folded_anew("scheduler", SCHEDULER.new_state, random), log.followers["scheduler"].state
    assert decided_by(anew) == decided_by(live)
    before, after = retried(live), retried(anew)
    assert [before[each] for each in before if each in after] == [after[each] for each in before if each in after]
    gateway = log.folded_anew("gateway", GATEWAY.new_state, random)
    assert gateway.encode() == log.followers["gateway"].state.encode()
