"""Scheduler, quota ledger and gateway without servers: three logs, each follower as far behind as chance has it,
messages lost, late and doubled.

Decisions are those of the real code; only the shells are replaced. After every event of the ledger its accounts
must balance, and after every step no pod of a quota may be placed by this scheduler without a charge.
"""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.accounting.verify_invariants_by_replay import checked, holds
from services.quota_ledger.decide.admission import limit_of
from services.quota_ledger.decide.charge import charge
from services.quota_ledger.decide.decide_ledger_events import overuse, postings, runtimes, structure
from services.quota_ledger.decide.pod_changes import MAX_PODS
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import FOLDED, LedgerState
from services.scheduler.configuration import config_drafts, config_of
from services.scheduler.cycle.cycle import plan_cycle
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_plan import CyclePlan
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.quota.charge_of_cycle import ChargeOfCycle, LedgerResponse, charge_of, charged
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.amounts import exceeding
from shared.domain.quota_charge import ChargeRequest, ChargeResponse, decode_request, decode_response, encode
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import (
    BindRejected,
    EvictionRejected,
    NodeDeleted,
    NodeObserved,
    ObjectDeleted,
    PodBound,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested
from shared.events.log import ConfigApplied, WriterStarted
from shared.events.quota import PodCharged
from shared.events.scheduling import PodNominated, PodPlaced
from shared.kube.elastic_quota import RESERVED
from shared.kube.instants import SECOND
from tests.support.quota_logs import pod, quota
from tests.support.scheduling_world import START_NS
from tests.support.scheduling_world import node as roomy

CONTEXTS = ("cluster", "scheduling", "quota")
TEAMS = ("a", "b")
SETTINGS = LedgerSettings()


class Waiting(NamedTuple):
    """A cycle of the scheduler between its request and its append."""

    plan: CyclePlan
    seen: dict[str, int]
    request: ChargeRequest
    charge: ChargeOfCycle


class World:
    """All of it."""

    def __init__(self, seed: int, settings: LedgerSettings = SETTINGS) -> None:
        self.chance = random.Random(seed)
        self.settings = settings
        self.logs: dict[str, list[RecordedEvent]] = {context: [] for context in CONTEXTS}
        self.now_ns = START_NS
        self.projection = LedgerProjection()  # the ledger's log at its head
        self.pods: dict[str, Event] = {}  # uid -> as the API has it
        self.bound: dict[str, str] = {}
        self.bound_by_others: set[str] = set()  # pods that another scheduler has bound
        self.answered: set[int] = set()  # placements (`scheduling` seq) with an outcome
        self.ended: set[Cause] = set()  # evictions with an outcome
        self.requested: set[tuple[int, str]] = set()  # (cycle, uid) whose charge was requested
        self.epoch = 0
        self.made = 0
        self.charged = self.refused = self.late = self.unanswered = self.preempted = self.kept = 0
        self.bus: list[bytes] = []  # requests that may arrive, any number of times
        self.answers: list[ChargeResponse] = []
        self.waiting: Waiting | None = None
        self.say("cluster", *(NodeObserved(node=f"n{n}", object=roomy(f"n{n}", cpu="12")) for n in range(2)))
        self.say("cluster", quota("a", "4", "10"), quota("b", "6", "12"))
        self.start_ledger()
        self.start_scheduler()

    # -- logs

    def say(
        self, context: str, *events: Event, cause: Cause | None = None, seen: dict[str, int] | None = None
    ) -> list[RecordedEvent]:
        """Append events in one transaction; the ledger's are checked one by one."""
        records = []
        if events and seen is not None:
            events = (replace(events[0], seen=dict(seen), now_ns=self.now_ns), *events[1:])
        for event in events:
            record = RecordedEvent(context, len(self.logs[context]) + 1, event, self.now_ns, cause)
            self.logs[context].append(record)
            records.append(record)
            if context == "quota":
                self._check(record)
        return records

    def _check(self, record: RecordedEvent) -> None:
        event = record.event
        before = self.projection.pods.get(getattr(event, "pod_uid", ""))
        assert [*checked(self.projection, record)] == [], record
        if isinstance(event, PodCharged) and event.epoch and before is not None and not before.charged:
            self.charged += 1
            info = self.projection.trees[before.tree].quotas[before.quota]
            over = exceeding(info.used, limit_of(info, self.settings.admission()))
            assert before.quota in RESERVED or not over, f"{record} exceeds {before.quota}"  # I17

    def read(self, state: LedgerState | SchedulerState, context: str, most: int) -> None:
        """Fold some more of a context."""
        at = state.positions.get(context, 0)
        for record in self.logs[context][at : at + max(most, 0)]:
            if isinstance(state, SchedulerState) or isinstance(record.event, FOLDED[context]):
                state.apply(record)
            state.positions[context] = record.seq

    def catch_up(self, state: LedgerState | SchedulerState, own: str) -> None:
        """Read what the last append of the own log had seen; before that nobody leads."""
        seen = next((found for record in reversed(self.logs[own]) if (found := record.event.seen)), {})
        for context, seq in seen.items():
            self.read(state, context, seq - state.positions.get(context, 0))

    # -- the ledger

    def start_ledger(self) -> None:
        """A new leader: its own log to the head, the others as far as chance has it; from a snapshot, or from the first
        event.
        """
        state = self.settings.new_state()
        old: LedgerState | None = getattr(self, "ledger", None)
        if old is not None and self.chance.random() < 0.5:
            state.restore(old.encode())
        self.ledger = state
        self.read(state, "quota", 10**6)
        self.catch_up(state, "quota")
        self.sync_ledger(
            WriterStarted(epoch=self.now_ns, release="0"),
            ConfigApplied(source="", digest="", text=self.settings.text()),
        )

    def sync_ledger(self, *events: Event) -> None:
        """The ledger appends, and folds what it appended."""
        if events:
            self.say("quota", *events, seen=self.ledger.positions)
            self.read(self.ledger, "quota", 10**6)

    def book(self) -> None:
        """As the service does, with other logs read between its appends."""
        ledger = self.ledger
        while drafts := structure(ledger, self.settings):
            self.sync_ledger(*(draft.event for draft in drafts))
            self.lag(ledger)
        while True:
            is_all = len(ledger.pods_to_update) <= MAX_PODS
            self.sync_ledger(*(draft.event for draft in postings(ledger)))
            self.lag(ledger)
            self.sync_ledger(*(draft.event for draft in runtimes(ledger)))
            self.lag(ledger)
            if is_all:
                self.sync_ledger(*(draft.event for draft in overuse(ledger, self.settings, self.now_ns)))
                return

    def serve(self) -> None:
        """Catches up, and responds to some of the requests on the bus whose positions are read."""
        read = dict(self.ledger.positions)
        self.book()
        if not self.bus:
            return
        chance = self.chance
        received = [
            self.bus[-1] if chance.random() < 0.8 else chance.choice(self.bus) for _ in range(chance.randrange(4))
        ]
        arrived = [decode_request(data) for data in received]
        ready = [one for one in arrived if all(read.get(name, 0) >= one.seen.get(name, 0) for name in CONTEXTS)]
        if not ready:
            return
        drafts, answers = charge(self.ledger, ready, self.settings.admission())
        self.sync_ledger(*(draft.event for draft in drafts))
        for answer in answers:
            self.late += answer.late
            self.refused += len(answer.refused)
            if self.chance.random() < 0.8:  # else it is lost, or the ledger dies before it answers
                self.answers.append(decode_response(encode(replace(answer, charged_at=len(self.logs["quota"])))))

    def lag(self, state: LedgerState | SchedulerState) -> None:
        """Reads a little of the other contexts, or nothing; the scheduler holds its State while it awaits a charge."""
        if state is self.view and self.waiting is not None:
            return
        for context in CONTEXTS:
            if self.chance.random() < 0.6:
                self.read(state, context, self.chance.randrange(12))

    # -- the scheduler

    def start_scheduler(self) -> None:
        """A new leader of a later epoch; what it waited for is lost."""
        self.waiting = None
        self.answers.clear()
        self.view = view = SchedulerState()
        self.read(view, "scheduling", 10**6)
        self.catch_up(view, "scheduling")
        self.read(view, "quota", self.chance.randrange(10**3))
        self.epoch += 1
        self.sync_scheduler(WriterStarted(epoch=self.epoch, release="0"))
        self.sync_scheduler(*(draft.event for draft in config_drafts(view, None)))
        self.cache = CycleInputs(view, config_of(view).profiles)

    def sync_scheduler(
        self, *events: Event, causes: Sequence[Cause | None] = (), seen: dict[str, int] | None = None
    ) -> None:
        """The scheduler appends, and folds what it appended."""
        if events:
            self.say("scheduling", *events, seen=self.view.positions if seen is None else seen)
            self.read(self.view, "scheduling", 10**6)

    def begin_cycle(self) -> None:
        """Places in memory and requests charges; or records a cycle without charges."""
        if self.waiting is not None:
            return
        view = self.view
        seen = dict(view.positions)
        plan = plan_cycle(self.cache, self.now_ns, self.chance.randrange(1, 9))
        charge = charge_of(plan, self.cache)
        if charge is None:
            self._record(plan, seen)
            return
        self.kept += len(charge.refused)
        uids = charge.groups
        if not uids:
            self._record(charged(plan, self.cache, charge, None), seen)
            return
        if len(uids) > 1 and self.chance.random() < 0.3:
            uids = (uids[0] + uids[1], *uids[2:])  # a gang
        request = ChargeRequest(epoch=self.epoch, cycle=plan.cycle, seen=seen, groups=uids)
        self.waiting = Waiting(plan, seen, request, charge)
        self.bus.append(encode(request))

    def end_cycle(self) -> None:
        """Takes the response if it has arrived; else repeats the request, waits, or gives up."""
        if self.waiting is None:
            return
        plan, seen, request, charge = self.waiting
        mine = [
            one for one in self.answers if (one.epoch, one.cycle) == (request.epoch, request.cycle) and not one.late
        ]
        chance = self.chance.random()
        response: LedgerResponse | None = None
        if mine:
            response = LedgerResponse(mine[-1].charged_at, mine[-1].refused)
        elif chance < 0.15:
            self.unanswered += 1
        else:
            self.bus += [encode(request)] if chance < 0.35 else []
            return
        self.waiting = None
        self.answers.clear()
        self.requested |= {(request.cycle, uid) for group in request.groups for uid in group}
        self._record(charged(plan, self.cache, charge, response), seen)

    def _record(self, plan: CyclePlan, seen: dict[str, int]) -> None:
        events = [draft.event for draft in drafts_of(plan)]
        self._check_preempted(events)
        self.sync_scheduler(*events, seen=seen)

    def _check_preempted(self, made: Sequence[Event]) -> None:
        """Victims are of the same quota, of lower priority, preemptible and charged in the scheduler's view."""
        pods = self.view.quota.pods
        for event in made:
            if isinstance(event, PodNominated) and event.quota:
                self.preempted += len(event.victims)
                preemptor = self.view.pods[event.pod_uid].pod_class
                assert preemptor is not None
                for uid in event.victims:
                    entry, victim = pods[uid], self.view.pods[uid].pod_class
                    assert victim is not None
                    assert (entry.quota, entry.preemptible, entry.charged) == (event.quota, True, True)
                    assert victim.priority < preemptor.priority

    # -- the gateway and the cluster

    def evict(self) -> None:
        """A pod whose eviction is requested goes, or its budget lets it stay."""
        open_ = [
            (cause, record.event)
            for context in ("scheduling", "quota")
            for record in self.logs[context]
            if isinstance(record.event, EvictionRequested) and (cause := Cause(context, record.seq)) not in self.ended
        ]
        uids = [wish.pod_uid for cause, wish in open_ if cause.context == "quota"]
        assert len(uids) == len(set(uids)), "the ledger repeats a request that has no outcome"
        if not open_:
            return
        cause, wish = self.chance.choice(open_)
        self.ended.add(cause)
        if self.chance.random() < 0.3:
            self.say("cluster", EvictionRejected(pod=wish.pod, pod_uid=wish.pod_uid, reason="budget"), cause=cause)
            return
        node = self.bound.get(wish.pod_uid, "")
        self.say("cluster", PodEvicted(pod=wish.pod, pod_uid=wish.pod_uid, node=node), cause=cause)
        if wish.pod_uid in self.pods:
            self._lose(wish.pod_uid)

    def carry_out(self) -> None:
        """One placement without an outcome gets one."""
        open_ = [
            record
            for record in self.logs["scheduling"]
            if isinstance(record.event, PodPlaced) and record.seq not in self.answered
        ]
        if not open_:
            return
        record = self.chance.choice(open_)
        placed = record.event
        assert isinstance(placed, PodPlaced)
        self.answered.add(record.seq)
        cause = Cause("scheduling", record.seq)
        taken = placed.pod_uid not in self.pods or placed.pod_uid in self.bound_by_others
        if taken or self.chance.random() < 0.25:
            self.say("cluster", BindRejected(pod=placed.pod, pod_uid=placed.pod_uid, reason="no"), cause=cause)
            return
        assert placed.pod_uid not in self.bound, "bound twice"
        self.say("cluster", PodBound(pod=placed.pod, pod_uid=placed.pod_uid, node=placed.node), cause=cause)
        self._bind(placed.pod_uid, placed.node)

    def _bind(self, uid: str, node: str) -> None:
        event = self.pods[uid]
        assert isinstance(event, PodObserved)
        body = event.object
        self.bound[uid] = node
        self.pods[uid] = after = replace(event, object=replace(body, spec=replace(body.spec, node_name=node)))
        self.say("cluster", after)

    def create(self) -> None:
        """A pod of a team, or of none."""
        self.made += 1
        team = self.chance.choice((*TEAMS, *TEAMS, ""))
        event = pod(f"p{self.made}", team, str(self.chance.randrange(1, 4)), priority=self.chance.randrange(4))
        spec = replace(event.object.spec, scheduler_name="koord-scheduler")
        event = replace(event, object=replace(event.object, spec=spec))
        self.pods[event.pod_uid] = event
        self.say("cluster", event)

    def delete(self) -> None:
        """A pod goes."""
        if self.pods:
            self._lose(self.chance.choice(sorted(self.pods)))

    def _lose(self, uid: str) -> None:
        self.pods.pop(uid)
        self.bound.pop(uid, None)
        self.say("cluster", PodDeleted(pod=f"ns/{uid}", pod_uid=uid))

    def bind_by_others(self) -> None:
        """Another scheduler takes a pod for which nobody has an intent."""
        placed = {record.event.pod_uid for record in self.logs["scheduling"] if isinstance(record.event, PodPlaced)}
        free = sorted(self.pods.keys() - self.bound.keys() - placed)
        if free and self.waiting is None:
            uid = self.chance.choice(free)
            self.bound_by_others.add(uid)
            self._bind(uid, "n1")

    def amend(self) -> None:
        """A quota declares something else; or a node comes or goes."""
        if self.chance.random() < 0.3:
            event: Event = NodeObserved(node="n2", object=roomy("n2", cpu="8"))
            self.say("cluster", event if self.chance.random() < 0.5 else NodeDeleted(node="n2", node_uid="node-n2"))
        elif self.chance.random() < 0.15:
            resource = "elasticquotas.scheduling.sigs.k8s.io"
            self.say("cluster", ObjectDeleted(resource=resource, name="quotas/b", uid="b"))
        else:
            lowest = self.chance.randrange(1, 6)
            self.say("cluster", quota(self.chance.choice(TEAMS), str(lowest), str(lowest + self.chance.randrange(8))))

    # -- what must hold

    def step(self) -> None:
        """Something happens."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (12, self.create),
            (2, self.delete),
            (1, self.bind_by_others),
            (2, self.amend),
            (8, self.carry_out),
            (6, self.evict),
            (10, self.begin_cycle),
            (16, self.end_cycle),
            (16, self.serve),
            (20, lambda: self.lag(self.ledger)),
            (20, lambda: self.lag(self.view)),
            (1, self.start_ledger),
            (1, self.start_scheduler),
        ]
        self.now_ns += self.chance.randrange(3) * SECOND
        weights = [weight for weight, _ in actions]
        [(_, act)] = self.chance.choices(actions, weights)
        act()
        self.check()

    def check(self) -> None:
        """No pod of a charge request may be placed without a charge."""
        assert [*holds(self.projection)] == []
        standing = {}
        for record in self.logs["scheduling"]:
            placed = record.event
            if not isinstance(placed, PodPlaced) or record.seq in self.answered:
                continue
            if (placed.cycle, placed.pod_uid) in self.requested:
                standing[placed.pod_uid] = record
        for uid, record in standing.items():
            held = self.projection.pods.get(uid)
            if uid in self.pods and held is not None and held.quota not in RESERVED:
                assert held.charged, f"{record} stands without a charge"

    def drain(self) -> None:
        """Everything that is under way ends; then all pods go."""
        for _ in range(2):
            for _ in range(60):
                self.now_ns += 10 * SECOND
                for state in (self.ledger, self.view):
                    for context in CONTEXTS:
                        self.read(state, context, 10**6)
                self.begin_cycle()
                for _ in range(4):
                    self.serve()
                    self.end_cycle()
                self.carry_out()
                self.evict()
                self.check()
            for uid in sorted(self.pods):
                self.say("cluster", PodDeleted(pod=f"ns/{uid}", pod_uid=uid))
            self.pods.clear()
            self.bound.clear()
