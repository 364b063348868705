"""Stored form of the gateway's State. Intents and outcomes are grouped by context, in order of seq."""

from collections.abc import Mapping
from sys import intern

import msgspec

from services.gateway.desired_state_outcome_codes import EarlyOutcome, Suppressed
from services.gateway.effects.eviction_budget import StoredEvictions
from services.gateway.effects.intent_types import DesiredState, OneShot
from services.gateway.intents_by_context_in_snapshot import ByContext
from services.gateway.known_objects import KnownObject, ObservedPod
from services.gateway.webhooks.admission_state import StoredAdmission
from shared.events.cluster import IntentRefused
from shared.events.intents import FieldsDesired, ObjectDesired


class StoredIntents(msgspec.Struct):
    """Stored form of the IntentIndex."""

    one_shots: ByContext[OneShot]
    recorded_ns: ByContext[int]
    desired_ns: ByContext[int]
    desired: ByContext[DesiredState]
    superseded: ByContext[DesiredState]
    applied: ByContext[FieldsDesired | ObjectDesired]
    given_up: ByContext[DesiredState]
    suppressed: ByContext[Suppressed]
    refused: ByContext[IntentRefused]
    early_outcomes: ByContext[EarlyOutcome]


class StoredPods(msgspec.Struct):
    """Stored form of the pods: columns in order of the keys, with indices into the names that pods have in common.

    A list of records would give each restored pod its own copies of the names. They are shared afterwards, but the
    freed copies would leave half-empty memory pools.
    """

    names: list[str]
    keys: list[str]
    identities: list[bytes]
    nodes: list[int]
    schedulers: list[int]
    quotas: list[int]
    flags: list[int]
    workloads: list[int]


class StoredState(msgspec.Struct):
    """Stored form of the whole State."""

    positions: dict[str, int]
    cluster: str
    log: str
    known: dict[str, dict[str, KnownObject]]
    pods: StoredPods
    intents: StoredIntents
    started_seq: int
    admission: StoredAdmission
    late_admitted: list[str]
    evictions: StoredEvictions


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER = msgspec.msgpack.Decoder(StoredState)


def encode(stored: StoredState) -> bytes:
    """Encodes a snapshot with sorted names, so that equal States give equal bytes."""
    return _ENCODER.encode(stored)


def decode(data: bytes) -> StoredState:
    """Decodes what `encode` wrote."""
    return _DECODER.decode(data)


def store_pods(pods: Mapping[str, ObservedPod]) -> StoredPods:
    """Returns the stored form of the pods."""
    keys = sorted(pods)
    in_order = [pods[key] for key in keys]
    names = sorted({name for pod in in_order for name in (pod.node, pod.scheduler, pod.quota, pod.workload)})
    index = {name: number for number, name in enumerate(names)}
    return StoredPods(
        names=names,
        keys=keys,
        identities=[pod.identity for pod in in_order],
        nodes=[index[pod.node] for pod in in_order],
        schedulers=[index[pod.scheduler] for pod in in_order],
        quotas=[index[pod.quota] for pod in in_order],
        flags=[pod.flags for pod in in_order],
        workloads=[index[pod.workload] for pod in in_order],
    )


def restore_pods(stored: StoredPods) -> dict[str, ObservedPod]:
    """Reverses `store_pods`; the names are interned."""
    names = list(map(intern, stored.names))
    columns = zip(
        stored.keys,
        stored.identities,
        stored.nodes,
        stored.schedulers,
        stored.quotas,
        stored.flags,
        stored.workloads,
        strict=True,
    )
    return {
        key: ObservedPod(identity, names[node], names[scheduler], names[quota], flags, names[workload])
        for key, identity, node, scheduler, quota, flags, workload in columns
    }
