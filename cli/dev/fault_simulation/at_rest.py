"""Invariants of a world that has come to rest: every State is the fold of its log, and nothing is left undone."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from cli.dev.fault_simulation import what_holds
from cli.dev.fault_simulation.cards_at_rest import differing_devices
from cli.dev.fault_simulation.held_capacity import requested
from cli.dev.fault_simulation.invariants import EVICTING, Invariants
from cli.dev.fault_simulation.memory_api import LEASES
from cli.dev.fault_simulation.memory_log import Context
from cli.dev.fault_simulation.migrations_at_rest import unfinished_moves
from cli.dev.fault_simulation.records_of_log import records
from cli.dev.fault_simulation.replica import ONE_SHOT_MAX_AGE_S, Replica
from cli.dev.fault_simulation.substitutions import CODEC
from cli.dev.fault_simulation.waiting_at_rest import used_of
from cli.dev.fault_simulation.world import World
from services.gateway.cluster_lease import log_of
from services.gateway.effects.desired_state_comparison import desired_patch, fields_named
from services.gateway.effects.intent_types import FieldGroup, field_group
from services.quota_ledger.accounting.verify_invariants_by_replay import holds
from services.quota_ledger.state.ledger_state import LedgerState
from shared.domain.fields_written_once import is_written_once
from shared.domain.node_metric_status import desired_status
from shared.domain.reservation import PRE_ALLOCATION_FIELDS
from shared.events import RecordedEvent
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import CarriedForward
from shared.events.metrics import NodeReported
from shared.events.scheduling import PodPlaced
from shared.fold import BeginsLate, State
from shared.kube import resource_names
from shared.kube.quantity import NANO, nanos
from shared.log.codec import Codec
from shared.runtime.rebuild import first_difference

_COPY = CarriedForward.type_name()

_REQUESTS = (resource_names.MIGRATION_JOBS, resource_names.RESERVATIONS)
"""Objects that are made once: whoever deletes one wants it to be gone."""

MOST_LATE_EVENTS = 100
"""Events of a context in the last seconds, where a list that hung at the end of the faults may just have been given up,
or a pod may still be moved; a service that decides the same again and again appends hundreds.
"""

GIVEN_UP_WITHIN_S = 1.0
"""Time that the gateway may take to give up an eviction that has become too old."""

BATCH_CPU = "kubernetes.io/batch-cpu"
MILLI = NANO // 1000


def folded(replica: Replica, contexts: dict[str, Context]) -> State:
    """Returns the fold of the log, from the oldest kept event to a replica's positions."""
    runtime = replica.runtime
    assert runtime is not None, "a running replica"
    state = runtime.service.new_state()
    for name, kinds in runtime.service.follows.items():
        context, codec = contexts[name], CODEC(kinds)
        upto = runtime.follower.positions[name].seq
        for record in (*_copies(context, codec), *records(context, codec, upto)):
            state.apply(record)
        if upto:
            state.positions[name] = upto
        if context.first > 1 and isinstance(state, BeginsLate):
            state.history_begins(name, context.first - 1)
    return state


def _copies(context: Context, codec: Codec) -> list[RecordedEvent]:
    """Returns what was carried forward, with which a fold from the oldest kept event begins."""
    rows = [row for row in context.rows if row.type == _COPY]
    found = [codec.original(msgspec.json.decode(row.data, type=CarriedForward)) for row in rows]
    first = {
        (record.seq, record.event.type_name()): record
        for record in found
        if record is not None and record.seq < context.first
    }
    return [first[place] for place in sorted(first)]


def states(world: World) -> Iterator[str]:
    """Yields what is wrong with the States of the running replicas."""
    for replica in world.replicas:
        runtime = replica.runtime
        if runtime is None or not replica.running or runtime.phase != "leading":
            continue
        expected, found = folded(replica, world.postgres.contexts), runtime.state
        is_cut = any(world.postgres.contexts[name].first > 1 for name in runtime.service.follows)
        path = what_holds.difference(replica.service, found, expected) if is_cut else _difference(found, expected)
        if path is not None:
            yield f"the State of {replica.name} differs from the fold of its log at {path}"


def _difference(found: State, expected: State) -> str | None:
    ours, folded_anew = found.encode(), expected.encode()
    if ours == folded_anew:
        return None
    return "/".join(first_difference(_decoded(ours), _decoded(folded_anew)))


def _decoded(data: bytes) -> Any:
    return msgspec.json.decode(data) if data.startswith(b"{") else msgspec.msgpack.decode(data, strict=False)


def undone(world: World) -> Iterator[str]:
    """Yields what has been left undone, beside what waits."""
    for service in sorted({replica.service for replica in world.replicas}):
        if world.leader(service) is None:
            yield f"no replica of {service} leads"
    waits = _waits_for_budget(world)
    for cause, uid in world.invariants.one_shots.items():
        if cause not in world.invariants.outcomes and cause not in waits and not _has_left(world, cause):
            yield f"{cause}, about {uid}, has no outcome"
    for context, count in world.invariants.late_events.items():
        if count > MOST_LATE_EVENTS:
            yield f"{context} has {count} events at the end, where nothing happens any more"
    yield from _gateway(world, waits)
    yield from _unwritten(world)
    yield from _ledger(world)
    yield from _conditions(world)
    yield from _overcommitted(world)
    yield from differing_devices(world)
    yield from unfinished_moves(world)


def _waits_for_budget(world: World) -> frozenset[str]:
    """Returns the causes of evictions that wait for budget, or behind one of the same pod that does, and are younger than
    their limit: a service may request one again, once it was given up or by another clock than the gateway's.
    """
    leader = world.leader("gateway")
    if leader is None or leader.runtime is None:
        return frozenset()
    since_s = world.loop.time() - ONE_SHOT_MAX_AGE_S - GIVEN_UP_WITHIN_S
    one_shots = world.invariants.one_shots
    paused = {one_shots[str(cause)] for cause in leader.runtime.state.evictions.paused}
    young = {uid for uid in paused if world.invariants.decided_s(uid) > since_s}
    return frozenset(cause for cause, uid in one_shots.items() if uid in young)


def _has_left(world: World, cause: str) -> bool:
    """Reports whether an intent has left the log, so that no gateway that begins after a long outage can read it: behind
    a newer one of its pod, whose outcome is that of both; from a context that may not request evictions, and carries
    none on; or because its pod was gone, and nothing is left to carry out.
    """
    invariants, (name, _, seq) = world.invariants, cause.partition("/")
    if cause not in invariants.repeated and name in EVICTING and not _was_gone(invariants, cause):
        return False
    context = world.postgres.contexts[name]
    copied = (msgspec.json.decode(row.data, type=CarriedForward) for row in context.rows if row.type == _COPY)
    return int(seq) < context.first and all(each.original != cause for each in copied)


def _was_gone(invariants: Invariants, cause: str) -> bool:
    """Reports whether the pod of an intent was recorded as gone when the intent left its log, and no gateway began in
    between: the one that recorded it ended before the outcome, and the next one began too late.
    """
    name, _, seq = cause.partition("/")
    gone_s, left_s = invariants.gone_s.get(invariants.one_shots[cause], math.inf), invariants.left_s(name, int(seq))
    began_s = [at_s for at_s in invariants.gateway_began_s if at_s > gone_s]
    return gone_s < left_s < min(began_s, default=0.0)


def _gateway(world: World, waits: frozenset[str]) -> Iterator[str]:
    """The gateway's objects are the server's, and no desired state is left."""
    leader = world.leader("gateway")
    if leader is None or leader.runtime is None:
        return
    state = leader.runtime.state
    for resource, objects in world.api.objects.items():
        if resource in (LEASES, resource_names.KUBERNETES_EVENTS):
            continue  # no log has them
        known = {key: each.uid for key, each in state.known.get(resource, {}).items()}
        there = {key: body["metadata"]["uid"] for key, body in objects.items()}
        if resource == "configmaps":
            there = {key: uid for key, uid in there.items() if key.startswith("koordinator-system/")}
        if known != there:
            wrong = sorted(set(known.items()) ^ set(there.items()))
            yield f"the log's {resource} differ from the server's: {wrong[:3]}"
    for key, body in world.api.objects["pods"].items():
        if key in state.pods and state.pods[key].node != body["spec"].get("nodeName", ""):
            yield f"the log has {key} on {state.pods[key].node!r}, the server on {body['spec'].get('nodeName')!r}"
    for lease in world.api.objects[LEASES].values():
        if log_of(lease) != state.log:
            yield f"the Lease is that of {log_of(lease)!r}, and the log of the gateway that leads is {state.log}"
    intents = state.intents
    due = {**intents.one_shots, **intents.desired, **intents.superseded, **intents.given_up}
    if left := sorted(set(map(str, due)) - waits):
        yield f"intents are still due: {', '.join(left[:3])}"


def _unwritten(world: World) -> Iterator[str]:
    """Objects have the newest desired state of each field group that the kept logs name.

    Of what Kubernetes or an operator may change afterwards, that it has an outcome is all. A placement has its own
    Reservation in place of one that took the pod over before. Kubernetes Events are not watched: one that an unanswered
    request makes after its deletion stays until it expires.
    """
    newest: dict[FieldGroup, tuple[str, FieldsDesired | ObjectDesired]] = {}
    codec = CODEC((FieldsDesired, ObjectDesired, NodeReported, PodPlaced))
    for context in world.postgres.contexts.values():
        for record in records(context, codec, context.head.seq):
            desired = record.event
            if isinstance(desired, PodPlaced):
                newest.pop(FieldGroup("pods", desired.pod, context.name, PRE_ALLOCATION_FIELDS), None)
            if isinstance(desired, NodeReported) and desired.status_desired:
                desired = desired_status(desired)
            if isinstance(desired, FieldsDesired | ObjectDesired) and not _is_request(desired):
                newest[field_group(context.name, desired)] = f"{context.name}/{record.seq}", desired
    for group, (cause, desired) in newest.items():
        body, patch = world.api.objects.get(group.resource, {}).get(group.key), desired_patch(desired)
        if isinstance(desired, FieldsDesired) and (body is None or desired.uid not in ("", body["metadata"]["uid"])):
            continue  # the object is gone
        is_deleted = isinstance(desired, ObjectDesired) and desired.body is None
        if (
            is_deleted
            and group.resource == resource_names.KUBERNETES_EVENTS
            and (group.resource, group.key) in world.transport.late
        ):
            continue
        if (body is None) is not is_deleted:
            yield f"{group.resource} {group.key} is {'missing' if body is None else 'there'}, against {cause}"
        elif body is not None and fields_named(patch, body) != patch:
            yield f"{group.resource} {group.key} does not have the values of {cause}"


def _is_request(desired: FieldsDesired | ObjectDesired) -> bool:
    """Reports whether others may change what was desired, once it is written."""
    if isinstance(desired, ObjectDesired):
        return desired.resource in _REQUESTS
    return desired.resource == resource_names.CLAIMS or is_written_once(desired)


def _ledger(world: World) -> Iterator[str]:
    """The ledger balances, and charges what is bound, and what holds a node."""
    leader = world.leader("quota-ledger")
    if leader is None or leader.runtime is None:
        return
    state: LedgerState = leader.runtime.state
    for rule, what in holds(state.projection):
        yield f"the ledger breaks {rule}: {what}"
    for quota in world.api.objects[resource_names.QUOTAS].values():
        name = quota["metadata"]["name"]
        bound = used_of(world, name)
        info = state.projection.trees[state.projection.tree_of.get(name, "")].quotas.get(name)
        charged = info.used.get("cpu", 0) if info is not None else 0
        if charged != bound // 10**6:
            yield f"the ledger charges {charged} m of cpu to {name}, its bound pods and those with a held node request {bound // 10**6} m"


def _conditions(world: World) -> Iterator[str]:
    """A bound pod has no condition that it is unschedulable."""
    for pod in world.invariants.live_pods():
        conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
        if pod["spec"].get("nodeName") and conditions.get("PodScheduled") != "True":
            yield f"{pod['metadata']['name']} is bound, and its condition PodScheduled is not True: {conditions}"


def _overcommitted(world: World) -> Iterator[str]:
    """No node has batch-cpu for a further pod that its high-priority pods have requested already."""
    pods = world.invariants.live_pods()
    for name, node in world.api.objects["nodes"].items():
        capacity, batch = (nanos(node["status"]["allocatable"].get(each, "0")) for each in ("cpu", BATCH_CPU))
        there = [pod for pod in pods if pod["spec"].get("nodeName") == name]
        taken = sum(requested(pod, BATCH_CPU) for pod in there)
        high = sum(requested(pod, "cpu") for pod in there)
        if batch > taken and batch // 1000 + high > capacity:
            yield f"{name} has {batch // NANO} m of batch-cpu beside {high // MILLI} m of requests, and {capacity // MILLI} m of cpu"
