"""Faults of the product, put back one at a time: each is a patch under which the simulation must find a violation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest.mock import patch

from services.gateway import retention_carry_forward as gateway_carry_forward
from services.gateway import service
from services.gateway.effects import outcome_events, pod_writes
from services.gateway.effects.effect_runner import EffectRunner
from services.gateway.effects.eviction_budget import EvictionBudget
from services.gateway.effects.spend_budget_or_pause_eviction import EvictionPauses
from services.gateway.intents_and_outcomes_index import IntentIndex
from services.gateway.kube_api import api_errors, client
from services.gateway.kube_api.api_errors import Ambiguous, ApiError, Busy, Rejected
from services.gateway.watch import watcher
from services.gateway.watch.incomplete_list_guard import ListResult, ShortLists
from services.gateway.watch.observation_buffer import ObservationBuffer
from services.quota_ledger.decide.charge import _Charges
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import NumaNode
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.events.cluster import OUTCOMES
from shared.log.follower import Follower
from shared.log.position import Position
from shared.log.retention_carry_forward import Candidate, copies
from shared.runtime import declared_intents, retention
from tests.simulation.card_mutations import CARD_MUTATIONS
from tests.simulation.effect_mutations import EFFECT_MUTATIONS
from tests.simulation.gang_and_reservation_mutations import GANG_AND_RESERVATION_MUTATIONS, both
from tests.simulation.held_by_placements_mutations import HELD_BY_PLACEMENTS_MUTATIONS
from tests.simulation.lease_mutations import LEASE_MUTATIONS
from tests.simulation.log_mutations import LOG_MUTATIONS
from tests.simulation.migration_mutations import MIGRATION_MUTATIONS
from tests.simulation.overcommit_mutations import OVERCOMMIT_MUTATIONS

Mutation = Callable[[], AbstractContextManager[Any]]


def _outcomes_are_forgotten() -> AbstractContextManager[Any]:
    finish = EffectRunner._finish

    def forgets(self: EffectRunner, cause: Any, intent: Any, outcome: Any) -> None:
        if cause.seq % 5:
            finish(self, cause, intent, outcome)

    return patch.object(EffectRunner, "_finish", forgets)


def _placements_hold_no_room() -> AbstractContextManager[Any]:
    assignment = PodRecord.assignment
    return patch.object(PodRecord, "assignment", lambda self, **how: assignment(self, **how) if self.node else None)


def _placed_pods_wait_again() -> AbstractContextManager[Any]:
    """A placement counts on its node, and its pod is placed again."""
    assignment = PodRecord.assignment

    def counts(self: PodRecord, **how: Any) -> Any:
        with patch.object(PodRecord, "is_placed", is_placed):
            return assignment(self, **how)

    is_placed = PodRecord.is_placed
    return both(
        patch.object(PodRecord, "assignment", counts), patch.object(PodRecord, "is_placed", lambda _self: False)
    )


def _quotas_are_not_compared() -> AbstractContextManager[Any]:
    return patch.object(_Charges, "_short_of", lambda _self, _members: None)


def _gaps_are_passed_over() -> AbstractContextManager[Any]:
    """An announcement moves a follower ahead: events that it has not read count as seen."""
    apply_waiting = Follower._apply_waiting

    def passes(self: Follower, name: str) -> None:
        batch, projection = self._contexts[name].first, self._projection
        if batch is not None and self._tasks.started and batch.first > projection.positions[name].seq + 1:
            ahead = Position(batch.first - 1, batch.previous)
            projection.positions[name] = projection.folded_positions[name] = ahead
        apply_waiting(self, name)

    return patch.object(Follower, "_apply_waiting", passes)


def _ambiguous_answers_are_refusals() -> AbstractContextManager[Any]:
    bind = pod_writes.bind

    async def refuses(api: Any, intent: Any, *, now_ns: int) -> Any:
        create = api.create_binding

        class Deaf:
            async def create_binding(self, *arguments: Any, **named: Any) -> None:
                try:
                    await create(*arguments, **named)
                except Ambiguous as error:
                    raise Rejected(str(error)) from error

            find = staticmethod(api.find)

        return await bind(Deaf(), intent, now_ns=now_ns)  # type: ignore[arg-type]

    return patch.object(pod_writes, "bind", refuses)


def _bindings_are_claimed_before_they_are_made() -> AbstractContextManager[Any]:
    async def claims(api: Any, intent: Any, *, now_ns: int) -> Any:
        with suppress(ApiError):
            await api.create_binding(intent.pod, uid=intent.pod_uid, node=intent.node, annotations=intent.annotations)
        return outcome_events.bound(intent)

    return patch.object(pod_writes, "bind", claims)


def _lists_do_not_show_deletions() -> AbstractContextManager[Any]:
    def listed(self: ObservationBuffer, resource: str, _keys: set[str]) -> ListResult:
        self.not_listed.discard(resource)
        self._count_list(resource)
        self._wake()
        return ListResult.COMPLETE

    return patch.object(ObservationBuffer, "listed", listed)


def _short_lists_are_believed() -> AbstractContextManager[Any]:
    """Fault 13."""
    return patch.object(ShortLists, "believes", lambda *_: True)


def _snapshots_lose_open_intents() -> AbstractContextManager[Any]:
    restore = IntentIndex.restore

    def loses(self: IntentIndex, stored: Any) -> None:
        restore(self, stored)
        self.applied.clear()

    return patch.object(IntentIndex, "restore", loses)


def _cpus_are_given_twice() -> AbstractContextManager[Any]:
    def all_cpus(self: NumaNode) -> Any:
        return frozenset(self.options.topology.cpus) if self.options.known else frozenset()

    return patch.object(NumaNode, "free_cpus", property(all_cpus))


def _copies_are_made_of_what_the_partition_held() -> AbstractContextManager[Any]:
    """Fault 03: what was deleted meanwhile is carried forward."""

    def everything(_runtime: Any, _rule: Any, _kept: Any, found: Sequence[Candidate]) -> Any:
        return copies(found, lambda _record: True)

    return patch.object(retention, "_copies", everything)


def _nothing_is_carried_forward() -> AbstractContextManager[Any]:
    """Fault 03b: what still holds leaves with its partition."""
    return patch.object(retention, "_copies", lambda *_: [])


def _outcomes_leave_before_their_intents() -> AbstractContextManager[Any]:
    """Fault 04: a fold finds the intent alone, and it is due again."""
    rule = gateway_carry_forward.CARRY_FORWARD
    kinds = tuple(kind for kind in rule.kinds if kind not in OUTCOMES)
    return patch.object(service, "SERVICE", service.SERVICE._replace(carry_forward=rule._replace(kinds=kinds)))


def _old_effects_are_carried_out() -> AbstractContextManager[Any]:
    """Fault 04: an intent has an effect however old it is."""
    return patch.object(EffectRunner, "_too_old", lambda *_: None)


def _every_context_may_carry_every_intent() -> AbstractContextManager[Any]:
    """Fault 02."""
    return patch.object(declared_intents, "refusal", lambda *_: "")


def _budgets_of_evictions_are_ignored() -> AbstractContextManager[Any]:
    return patch.object(EvictionBudget, "admit", lambda *_: "")


def _evictions_before_a_crash_spend_nothing() -> AbstractContextManager[Any]:
    """An eviction counts only when its outcome was recorded by the gateway that carried it out."""
    return patch.object(EvictionPauses, "started", lambda *_: None)


def _forged_allocations_are_believed() -> AbstractContextManager[Any]:
    """Fault 08: what a tenant writes into its pod's annotations counts."""
    assignment = PodRecord.assignment
    return patch.object(PodRecord, "assignment", lambda self, **_: assignment(self, believes_annotations=True))


def _any_cluster_is_the_cluster_of_the_log() -> AbstractContextManager[Any]:
    """Fault 12."""

    async def confirms(runtime: Any, _api: Any, _outages: Any) -> bool:
        return not runtime.draining.is_set()

    return patch.object(service, "confirm_cluster", confirms)


@contextmanager
def _a_504_on_a_read_ends_the_gateway() -> Iterator[None]:
    """Fault 15."""
    translated = api_errors.api_error

    def ambiguous(status: int, body: bytes, request: str, rule: str) -> ApiError:
        return Ambiguous(request) if status == 504 else translated(status, body, request, rule)

    with (
        patch.object(client, "api_error", ambiguous),
        patch.object(watcher, "_pause_or_end", lambda error: isinstance(error, Busy)),
    ):
        yield


MUTATIONS: Mapping[str, Mutation] = {
    mutation.__name__.strip("_"): mutation
    for mutation in (
        _outcomes_are_forgotten,
        _placements_hold_no_room,
        _placed_pods_wait_again,
        _quotas_are_not_compared,
        _gaps_are_passed_over,
        _ambiguous_answers_are_refusals,
        _bindings_are_claimed_before_they_are_made,
        _lists_do_not_show_deletions,
        _short_lists_are_believed,
        _snapshots_lose_open_intents,
        _cpus_are_given_twice,
        _copies_are_made_of_what_the_partition_held,
        _nothing_is_carried_forward,
        _outcomes_leave_before_their_intents,
        _every_context_may_carry_every_intent,
        _a_504_on_a_read_ends_the_gateway,
        _old_effects_are_carried_out,
        _budgets_of_evictions_are_ignored,
        _evictions_before_a_crash_spend_nothing,
        _forged_allocations_are_believed,
        _any_cluster_is_the_cluster_of_the_log,
        *CARD_MUTATIONS,
        *MIGRATION_MUTATIONS,
        *LEASE_MUTATIONS,
        *LOG_MUTATIONS,
        *OVERCOMMIT_MUTATIONS,
        *EFFECT_MUTATIONS,
        *GANG_AND_RESERVATION_MUTATIONS,
        *HELD_BY_PLACEMENTS_MUTATIONS,
    )
}
