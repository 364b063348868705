"""What callers from outside may have done: questions answered from the index, bindings and evictions appended as intents.

Decisions are taken one at a time: whoever decides holds `turn` until its events are folded.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from services.scheduler.cache.scheduling_cache import Index
from services.scheduler.cycle.tie_break import name_hash
from services.scheduler.extender.api_types import ExtenderArgs, ExtenderBindingArgs, MetaVictims
from services.scheduler.extender.evaluation_query import EvaluationQuery
from services.scheduler.extender.pending_evictions import PendingEvictions
from services.scheduler.extender.verbs import cheapest, feasible_candidates, names_of
from services.scheduler.quota.charge_client import ChargeClient
from services.scheduler.quota.preemption import QuotaPreemptor
from services.scheduler.state.pod_record import PodFacts
from shared.events import Cause, Draft
from shared.events.intents import EvictionRequested
from shared.events.scheduling import CycleDecided, PodOutcome, PodPlaced
from shared.kube.pod import Pod
from shared.service import Runtime

T = TypeVar("T")

POLL_INTERVAL_S = 0.005

EXTENDER = "extender"
"""Who chose, in CycleDecided.by."""


class ExtenderService:
    """The part of a leading scheduler that others talk to.

    Attributes:
        index: what is known; None while this replica does not lead.
        charge_client: what placements are charged to; made with the index.
        turn: held while a decision is taken and appended.
        profile: the profile that judges pods of others; empty: the one of their scheduler's name, else the first.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.index: Index | None = None
        self.charge_client: ChargeClient | None = None
        self.turn = asyncio.Lock()
        self.profile: str = runtime.settings.extender_profile
        self._timeout_s: float = runtime.settings.extender_timeout_s
        self._pending_evictions = PendingEvictions()

    def query(self, pod: Pod) -> EvaluationQuery:
        """Judge a pod as things stand.

        Raises:
            BadQuery: its requests cannot be read.
        """
        assert self.index is not None, "asked only while leading"
        return EvaluationQuery(self.index, pod, self.runtime.now_ns(), self.profile)

    async def query_after_evictions(self, ask: ExtenderArgs) -> EvaluationQuery:
        """Judge a pod as things stand; where its room is being made on one of the nodes, once those who were asked to go have gone.

        Raises:
            BadQuery: its requests cannot be read.
        """
        query = self.query(ask.pod)
        node = self._awaited(ask.pod)
        if not node or query.feasible(node) or node not in names_of(ask):
            return query
        await self._until(lambda: None if self._awaited(ask.pod) else True, _now_s() + self._timeout_s)
        return self.query(ask.pod)

    async def bind(self, ask: ExtenderBindingArgs) -> str:
        """Bind a pod through the gateway: a cycle of one pod. Returns once its outcome is known; why it is not bound, or empty."""
        ends = _now_s() + self._timeout_s
        pod = f"{ask.pod_namespace}/{ask.pod_name}"
        facts = await self._until(lambda: self._known(ask.pod_uid), ends)
        if facts is None:
            return f"pod {pod} ({ask.pod_uid}) has not been observed; see whether the gateway follows this cluster (koord doctor)"
        async with self.turn:
            if facts.node:
                return "" if facts.node == ask.node else f"pod {pod} is bound to {facts.node} already"
            assert self.index is not None
            assert facts.ask is not None
            query = EvaluationQuery(self.index, facts.ask.pod, self.runtime.now_ns(), self.profile)
            given = query.given(ask.node) if query.feasible(ask.node) else None
            if given is None:
                return f"node {ask.node} does not take pod {pod}: {query.why_not(ask.node)[0]}"
            placed_seq = await self._place(facts, query, ask.node, given)
            if not placed_seq:
                return f"pod {pod} is refused by its quota; see: koord quota why {pod}"

        def ended() -> str | None:
            now = self.index and self.index.view.pods.get(facts.uid)
            if not now:
                return f"pod {pod} is gone"
            if now.node:
                return "" if now.node == ask.node else f"pod {pod} is bound to {now.node} already"
            if max(now.refused_seq, now.withheld_seq) >= placed_seq:
                return f"the binding of pod {pod} was not made; see: koord why pod {pod}"
            return None

        answer = await self._until(ended, ends)
        return f"the binding of pod {pod} has no outcome yet; see: koord why pod {pod}" if answer is None else answer

    async def preempt(self, pod: Pod, candidates: dict[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Make room for a pod on one of the nodes: its victims are evicted through the gateway, within their disruption budgets.

        Args:
            candidates: node -> victims, as the caller would evict them.

        Returns:
            The chosen node with its victims once they are going; nothing when none of the nodes helps, the evictions were refused, or
            it is not known in time what becomes of them: the caller asks again then, and is told of the same node. Nothing either while
            room is on its way on a node that the caller does not name any more: it has seen them leave before we have.

        Raises:
            BadQuery: the pod's requests cannot be read.
        """
        ends = _now_s() + self._timeout_s
        left = dict(candidates)
        while True:
            # The choice and its record are one turn: callers and cycles in between would choose from what it is about to change.
            async with self.turn:
                node = await self._evict(pod, left)
            if not node:
                return {}
            victims = left.pop(node)
            going = await self._going(_uids(victims), ends)
            if going is not False:
                return {node: victims} if going else {}

    async def _place(self, facts: PodFacts, query: EvaluationQuery, node: str, given: dict[str, str]) -> int:
        """Append the cycle and the placement; the placement's seq, 0 when the pod's quota refused it."""
        assert self.index is not None
        assert self.charge_client is not None
        assert facts.ask is not None
        view = self.index.view
        seen = dict(view.positions)
        number, score = view.cycle + 1, query.score(node)
        judged = query.judge.judged(name_hash(facts.uid))
        outcome = PodOutcome(pod_uid=facts.uid, judged=0, node=node)
        decided = CycleDecided(cycle=number, pods=(outcome,), classes=(judged,), by=EXTENDER)
        placed = PodPlaced(
            pod_uid=facts.uid,
            pod=facts.name,
            node=node,
            cycle=number,
            request=facts.ask.request,
            score=score,
            annotations=given,
        )
        drafts = (Draft(decided), Draft(placed, Cause("cluster", facts.since), facts.uid))
        charged = await self.charge_client.charged(drafts, seen, QuotaPreemptor(self.index), evicts=False)
        records = await self.runtime.append(charged, now_ns=self.runtime.now_ns(), seen=seen, config=view.config_digest)
        return records[-1].seq if isinstance(records[-1].event, PodPlaced) else 0

    async def _evict(self, pod: Pod, candidates: dict[str, MetaVictims]) -> str:
        """Requests the evictions on the node that loses least, of the victims that are not leaving already; the caller holds the turn.

        Returns:
            The node; empty where none helps, where capacity for the pod is on its way on a node that is no candidate, and where a victim is
            not there: it may be gone by now, so that another node's pods would go for nothing.
        """
        awaited = self._awaited(pod)
        if self.index is None or (awaited and awaited not in candidates):
            return ""
        able = feasible_candidates(candidates, self.query(pod))
        node = cheapest(able, self._is_evicted)
        uids = _uids(able[node]) if node else []
        known = [facts for uid in uids if (facts := self._known(uid))]
        if not node or len(known) < len(uids):
            return ""
        reason = f"makes room for pod {pod.metadata.key}"
        drafts = [
            Draft(
                EvictionRequested(pod_uid=facts.uid, pod=facts.name, reason=reason),
                Cause("cluster", facts.since),
                facts.uid,
            )
            for facts in known
            if not facts.is_leaving()
        ]
        if drafts:
            await self.runtime.append(drafts, now_ns=self.runtime.now_ns())
        self._pending_evictions.note(pod.metadata.uid, node, uids, self.index.view.pods)
        return node

    async def _going(self, uids: list[str], ends: float) -> bool | None:
        """True once all victims are going, False when one stays, None when that is not known in time."""

        def going() -> bool | None:
            if self.index is None:
                return None
            here = [facts for uid in uids if (facts := self.index.view.pods.get(uid))]
            left = [facts for facts in here if not facts.deleting and not facts.ended]
            if any(not facts.is_asked_to_go() for facts in left):
                return False
            return None if left else True

        return await self._until(going, ends)

    def _awaited(self, pod: Pod) -> str:
        return "" if self.index is None else self._pending_evictions.awaited(pod.metadata.uid, self.index.view.pods)

    def _is_evicted(self, uid: str) -> bool:
        facts = self._known(uid)
        return facts is not None and facts.is_asked_to_go()

    def _known(self, uid: str) -> PodFacts | None:
        if self.index is None:
            return None
        facts = self.index.view.pods.get(uid)
        if facts is None or not facts.since:
            return None
        self.index.settle()
        return facts if facts.ask is not None else None

    async def _until(self, found: Callable[[], T | None], ends: float) -> T | None:
        """What `found` returns as soon as it is not None; None when the time is over."""
        while (value := found()) is None and _now_s() < ends and not self.runtime.draining.is_set():
            await asyncio.sleep(POLL_INTERVAL_S)
        return value


def _uids(victims: MetaVictims) -> list[str]:
    return [victim.uid for victim in victims.pods or ()]


def _now_s() -> float:
    return asyncio.get_running_loop().time()
