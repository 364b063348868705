"""Requests of other schedulers to the leading scheduler: evaluations, bindings and evictions, the last two appended as
intents.

Decisions are made one at a time: a cycle and a request hold `turn` from their first read until their events are folded.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from services.scheduler.cache.disruption_budgets import Victim
from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_plan import CyclePlan, PlacedPod
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.extender_server.answer_extender_verbs import cheapest, feasible_candidates, names_of
from services.scheduler.extender_server.api_types import ExtenderArgs, ExtenderBindingArgs, MetaVictims
from services.scheduler.extender_server.destinations_of_moves import destinations
from services.scheduler.extender_server.evaluate_pod_outside_cycle import EvaluationQuery
from services.scheduler.extender_server.evictions_for_calling_scheduler import PendingEvictions
from services.scheduler.extender_server.victim_rules import fault_of, fault_of_gang, may_preempt
from services.scheduler.framework.gang_members_as_victims import GangVictims
from services.scheduler.framework.nominations_and_victims_of_cycle import CyclePreemptions
from services.scheduler.quota.charge_client import ChargeClient
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.bus import Request
from shared.domain.move_destinations import BadMovesMessage, DestinationsResponse, decode_request
from shared.events import Cause, Draft
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodPlaced
from shared.kube.pod import Pod
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_INTERVAL_S = 0.005

EXTENDER = "extender"
"""CycleDecided.by of a binding that another scheduler requested."""


class _ChargedCycle(NamedTuple):
    """A binding's cycle after its charge, and the inputs that are recorded with it."""

    drafts: tuple[Draft, ...]
    now_ns: int
    seen: dict[str, int]
    config_digest: str


class ExtenderService:
    """The part of a leading scheduler that serves other schedulers.

    Attributes:
        cache: the cycle inputs; None while this replica does not lead.
        config_digest: of the configuration that the cache was made with.
        charge_client: charges placements to the quota ledger; made with the cache.
        turn: held while a decision is made and appended.
        profile: the profile that evaluates pods of others; empty: the one of their scheduler's name, else the first.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.cache: CycleInputs | None = None
        self.config_digest = ""
        self.charge_client: ChargeClient | None = None
        self.turn = asyncio.Lock()
        self.profile: str = runtime.settings.extender_profile
        self._timeout_s: float = runtime.settings.extender_timeout_s
        self._max_victims: int = runtime.settings.extender_max_victims
        self._pending_evictions = PendingEvictions()

    def lead_with(self, cache: CycleInputs, config_digest: str, profile: str) -> None:
        """Serves from a settled cache, under the configuration that it was made with."""
        self.cache, self.config_digest, self.profile = cache, config_digest, profile

    def query(self, pod: Pod) -> EvaluationQuery:
        """Evaluates a pod on the present state.

        Raises:
            BadQuery: its requests cannot be read.
        """
        assert self.cache is not None, "requests are served only while leading"
        return EvaluationQuery(self.cache, pod, self.runtime.now_ns(), self.profile)

    async def answer_moves(self, request: Request) -> None:
        """Answers the descheduler: where pods would go if they had to move. Nothing is decided."""
        await request.respond(msgspec.json.encode(await self._destinations(request.data)))

    async def _destinations(self, data: bytes) -> DestinationsResponse:
        try:
            requested = decode_request(data)
        except BadMovesMessage as error:
            return DestinationsResponse(fault=str(error))
        async with self.turn:
            if self.cache is None:
                return DestinationsResponse(fault="the scheduler has not begun yet")
            with self.runtime.hold():
                seen = dict(self.cache.view.positions)
                found = destinations(self.cache, requested.moves, self.runtime.now_ns())
        return DestinationsResponse(seen, dict(found.nodes), dict(found.refused))

    async def query_after_evictions(self, args: ExtenderArgs) -> EvaluationQuery:
        """Evaluates a pod; where victims are leaving one of the nodes for it, waits until they have left.

        Raises:
            BadQuery: its requests cannot be read.
        """
        query = self.query(args.pod)
        node = self._pending_node(args.pod.metadata.uid)
        if not node or query.feasible(node) or node not in names_of(args):
            return query
        await self._until(
            lambda: None if self._pending_node(args.pod.metadata.uid) else True, _now_s() + self._timeout_s
        )
        return self.query(args.pod)

    async def bind(self, args: ExtenderBindingArgs) -> str:
        """Binds a pod through the gateway, in a cycle of one pod.

        Returns:
            Empty once the pod is bound; else the reason, for the caller.
        """
        ends = _now_s() + self._timeout_s
        pod = f"{args.pod_namespace}/{args.pod_name}"
        if await self._until(lambda: self._known(args.pod_uid), ends) is None:
            return f"pod {pod} ({args.pod_uid}) has not been observed; see whether the gateway follows this cluster (koord doctor)"
        async with self.turn:
            # All checks are made in the turn: the pod may have ended, and this replica may have stopped leading, while
            # others had theirs.
            with self.runtime.hold():
                charged = await self._charged_binding(args, pod)
            if isinstance(charged, str):
                return charged
            records = await self.runtime.append(
                charged.drafts, now_ns=charged.now_ns, seen=charged.seen, config=charged.config_digest
            )
        placed = records[-1]
        if not isinstance(placed.event, PodPlaced):
            return f"pod {pod} is refused by its quota; see: koord explain pod {pod}"

        def outcome() -> str | None:
            now = self.cache and self.cache.view.pods.get(args.pod_uid)
            if not now:
                return f"pod {pod} is gone"
            if now.node:
                return "" if now.node == args.node else f"pod {pod} is bound to {now.node} already"
            if max(now.refused_seq, now.suppressed_seq) >= placed.seq:
                return f"the binding of pod {pod} was not made; see: koord why pod {pod}"
            return None

        answer = await self._until(outcome, ends)
        return f"the binding of pod {pod} has no outcome yet; see: koord why pod {pod}" if answer is None else answer

    async def preempt(self, pod: Pod, candidates: dict[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Evicts the victims of one of the nodes through the gateway, within their disruption budgets.

        Args:
            pod: must be observed and wait for a node; its requests and its priority are those of the observed pod.
            candidates: node -> victims, as the caller would evict them. A node is left out when a victim does not run
                there or is not of lower priority, or when there are more than `extender_max_victims`.

        Returns:
            The chosen node with its victims once they are terminating. Nothing when none of the nodes helps, the
            evictions were refused, or their outcome is not known in time: the caller repeats its request then, and gets
            the same node. Nothing either while victims are leaving a node that the caller does not name any more: it
            has seen them leave before this scheduler has.

        Raises:
            BadQuery: the pod's requests cannot be read.
        """
        ends = _now_s() + self._timeout_s
        left = dict(candidates)
        uid = pod.metadata.uid
        if await self._until(lambda: self._known(uid), ends) is None:
            return {}
        while True:
            # The choice and its record are one turn: callers and cycles in between would choose from what it is about
            # to change.
            async with self.turn:
                node = await self._evict(uid, left)
            if not node:
                return {}
            victims = left.pop(node)
            terminating = await self._all_terminating(_uids(victims), ends)
            if terminating is not False:
                return {node: victims} if terminating else {}

    async def _charged_binding(self, args: ExtenderBindingArgs, pod: str) -> _ChargedCycle | str:
        """Evaluates the node for the pod and charges the placement; the caller holds the turn and the State.

        Returns:
            The cycle to append; else the response without one: empty for a pod that is bound to the node already.
        """
        if self.cache is None or self.charge_client is None:
            return f"this replica does not lead any more; pod {pod} was not bound: bind it again"
        pod_record = self._known(args.pod_uid)
        if pod_record is None:
            return f"pod {pod} is gone"
        if pod_record.node:
            return "" if pod_record.node == args.node else f"pod {pod} is bound to {pod_record.node} already"
        if pod_record.ended or pod_record.deleting:
            return f"pod {pod} has ended or is being deleted; it is not bound"
        assert pod_record.pod_class is not None, "_known returns only pods that have been read"
        view, now_ns = self.cache.view, self.runtime.now_ns()
        query = EvaluationQuery(self.cache, pod_record, now_ns, self.profile)
        allocation = query.allocation(args.node) if query.feasible(args.node) else None
        if allocation is None:
            return f"node {args.node} does not take pod {pod}: {query.rejection(args.node)[0]}"
        seen, number = dict(view.positions), view.cycle + 1
        evaluated = query.evaluation.record(name_hash(pod_record.uid))
        placed = PlacedPod(pod_record, pod_record.pod_class, args.node, query.score(args.node), 0, allocation)
        plan = CyclePlan(number, (placed,), (evaluated,), self.cache.profiles, by=EXTENDER)
        charged = await self.charge_client.charge(plan, self.cache, seen)
        return _ChargedCycle(drafts_of(charged), now_ns, seen, self.config_digest)

    async def _evict(self, uid: str, candidates: dict[str, MetaVictims]) -> str:
        """Requests the evictions on the node that loses least, of the victims that are not leaving already; the caller
        holds the turn.

        Returns:
            The node; empty where none helps, where capacity for the pod is on its way on a node that is no candidate,
            and where a victim is not there: it may be gone by now, so that another node's pods would be evicted for
            nothing.
        """
        preemptor, pending = self._known(uid), self._pending_node(uid)
        if preemptor is None or not may_preempt(preemptor) or (pending and pending not in candidates):
            return ""
        assert self.cache is not None, "a pod is known only while leading"
        now_ns, seen = self.runtime.now_ns(), dict(self.cache.view.positions)
        query = EvaluationQuery(self.cache, preemptor, now_ns, self.profile)
        able = feasible_candidates(self._allowed(preemptor, candidates), query)
        node = cheapest(able, self._is_evicted)
        uids = _uids(able[node]) if node else []
        known = [pod_record for uid in uids if (pod_record := self._known(uid))]
        if not node or len(known) < len(uids):
            return ""
        known += [self.cache.view.pods[victim.uid] for victim in self._rest_of_gangs(uids)]
        reason = f"preempted by pod {preemptor.name} of another scheduler"
        drafts = [
            Draft(
                EvictionRequested(pod_uid=pod_record.uid, pod=pod_record.name, reason=reason),
                Cause("cluster", pod_record.since),
                pod_record.uid,
            )
            for pod_record in known
            if not pod_record.is_terminating()
        ]
        if drafts:
            await self.runtime.append(drafts, now_ns=now_ns, seen=seen, config=self.config_digest)
        self._pending_evictions.note(uid, node, uids, self.cache.view.pods)
        return node

    def _allowed(self, preemptor: PodRecord, candidates: dict[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Returns the candidates whose victims may be evicted for the pod."""
        assert preemptor.pod_class is not None, "_known returns only pods that have been read"
        assert self.cache is not None, "a pod is known only while leading"
        allowed: dict[str, MetaVictims] = {}
        for node, victims in candidates.items():
            priority, rest = preemptor.pod_class.priority, self._rest_of_gangs(_uids(victims))
            fault = fault_of(node, victims, priority, self._known, self._max_victims)
            if fault := fault or fault_of_gang(preemptor, priority, rest, self.cache.view.gangs.gang_of):
                log.warning("victims of another scheduler are not evicted", extra={"pod": preemptor.name, "why": fault})
            else:
                allowed[node] = victims
        return allowed

    def _rest_of_gangs(self, uids: list[str]) -> list[Victim]:
        """Returns the members that are evicted with these pods, so that no gang runs with too few."""
        if self.cache is None:
            return []
        return GangVictims(self.cache, CyclePreemptions(self.cache, self.cache.nominated)).rest_of(uids)

    async def _all_terminating(self, uids: list[str], ends: float) -> bool | None:
        """True once all victims are terminating, False when one stays, None when that is not known in time."""

        def terminating() -> bool | None:
            if self.cache is None:
                return None
            here = [pod_record for uid in uids if (pod_record := self.cache.view.pods.get(uid))]
            left = [pod_record for pod_record in here if not pod_record.deleting and not pod_record.ended]
            if any(not pod_record.is_eviction_requested() for pod_record in left):
                return False
            return None if left else True

        return await self._until(terminating, ends)

    def _pending_node(self, uid: str) -> str:
        """The node that victims are leaving for the pod; empty for none."""
        return "" if self.cache is None else self._pending_evictions.node_of(uid, self.cache.view.pods)

    def _is_evicted(self, uid: str) -> bool:
        pod_record = self._known(uid)
        return pod_record is not None and pod_record.is_eviction_requested()

    def _known(self, uid: str) -> PodRecord | None:
        if self.cache is None:
            return None
        pod_record = self.cache.view.pods.get(uid)
        if pod_record is None or not pod_record.since:
            return None
        self.cache.settle()
        return pod_record if pod_record.pod_class is not None else None

    async def _until(self, found: Callable[[], T | None], ends: float) -> T | None:
        """Returns the value of `found` as soon as it is not None; None when the time is over."""
        while (value := found()) is None and _now_s() < ends and not self.runtime.draining.is_set():
            await asyncio.sleep(POLL_INTERVAL_S)
        return value


def _uids(victims: MetaVictims) -> list[str]:
    return [victim.uid for victim in victims.pods or ()]


def _now_s() -> float:
    return asyncio.get_running_loop().time()
