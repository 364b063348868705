"""Values of the gateway's State: last records of objects and pods, and results of desired states."""

from hashlib import blake2b
from typing import NamedTuple

import msgspec

from services.gateway.effects.intents import DesiredState
from services.gateway.kube_api.api_types import KeptObject
from shared.events import RecordedEvent
from shared.events.cluster import DesiredStateApplied, DesiredStateSuppressed

_JSON = msgspec.json.Encoder()
_SORTED = msgspec.json.Encoder(order="sorted")

ENDED, APPLIED = -1, 0
"""Results of a desired state that an outcome records; any other number is the seq of a DesiredStateSuppressed."""


class KnownObject(NamedTuple):
    """The last record of an object: its uid, and the digest of its kept fields."""

    uid: str
    digest: bytes


class ObservedPod(NamedTuple):
    """Fields of a pod that effects and webhooks need.

    Attributes:
        node: the node to which it is bound; empty if to none.
        scheduler: its `schedulerName`.
        unschedulable: it has the condition PodScheduled=False.
        terminating: it has a deletion timestamp.
        quota: the quota that its label names.
    """

    key: str
    node: str = ""
    scheduler: str = ""
    unschedulable: bool = False
    terminating: bool = False
    quota: str = ""


class Suppressed(NamedTuple):
    """A desired state that shadow mode did not write, and the `cluster` seq of that outcome."""

    desired: DesiredState
    seq: int


class EarlyOutcome(NamedTuple):
    """Outcomes of an intent that has not been read yet.

    Attributes:
        result: of the last outcome: ENDED, APPLIED, or the seq of a DesiredStateSuppressed. ENDED is final.
        applied: one of the outcomes was APPLIED, which is final for a desired state that ends once it is applied.
    """

    result: int
    applied: bool


def result_of(record: RecordedEvent) -> int:
    """Returns the result of a desired state that an outcome records."""
    if isinstance(record.event, DesiredStateSuppressed):
        return record.seq
    return APPLIED if isinstance(record.event, DesiredStateApplied) else ENDED


def digest_of(kept: KeptObject) -> bytes:
    """Returns sixteen bytes that differ if a kept field differs."""
    encoded = _SORTED.encode(kept) if isinstance(kept, dict) else _JSON.encode(kept)
    return blake2b(encoded, digest_size=16).digest()
