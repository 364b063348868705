"""What the gateway must remember: which objects the log knows, and which intents have no outcome yet.

The objects themselves stay in the API and in the log; a digest of each is enough to tell whether what was seen is news.
Contexts have no order among each other: an outcome (in `cluster`) may be read before the intent (in `scheduling`) that it
answers, so `ahead` holds such outcomes until their intents come.
"""

from collections.abc import Iterable
from hashlib import blake2b
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import msgspec

from services.gateway.effects.intents import POD_SCHEDULED, Act, Intent, Level, Place, Slot, place_of, slot_of
from services.gateway.kube_api.api_types import Kept
from services.gateway.kube_api.resources import NODE_METRICS, NODES, PODS
from services.gateway.webhooks.admission_state import AdmissionView, Stored
from shared.events import Cause, RecordedEvent
from shared.events.cluster import (
    OUTCOMES,
    AdmissionMissed,
    DesiredStateApplied,
    DesiredStateSuppressed,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import WriterStarted
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import Pod

ENDED, WRITTEN = -1, 0
"""What outcomes say of a level; any other number is the seq at which it was withheld."""


class Known(NamedTuple):
    """What the log last said of an object: which one it is, and the digest of its kept part."""

    uid: str
    digest: bytes


class PodSeen(NamedTuple):
    """What effects on a pod need to know of it.

    Attributes:
        node: where it was seen to be bound.
        scheduler: its `schedulerName`.
        waiting: it has the condition PodScheduled=False.
        leaving: it has a deletion timestamp.
        quota: that its label names.
    """

    key: str
    node: str = ""
    scheduler: str = ""
    waiting: bool = False
    leaving: bool = False
    quota: str = ""


class Withheld(NamedTuple):
    """A level that shadow mode did not write, and the `cluster` seq that said so."""

    level: Level
    seq: int


class Early(NamedTuple):
    """What outcomes recorded of an intent that has not been read yet.

    Attributes:
        said: of the last outcome: ENDED, WRITTEN, or the seq at which the level was withheld. ENDED is final.
        written: one of them was WRITTEN, which is final for a level that ends with being written.
    """

    said: int
    written: bool


class GatewayState:
    """A fold over `cluster` (own) and the intents of every other context.

    Attributes:
        known: resource -> key -> what the log last said of it. Nodes are those in `known["nodes"]`.
        pods: uid -> what effects need to know.
        acts, levels: intents without an outcome, oldest first within a context; of levels only the newest.
        superseded: levels without an outcome of which a newer one has come, or of a pod that was placed since.
        newest: the newest level of each slot, from when it is read until it has ended.
        held: the newest levels that were written; they are written again when another hand changes what they say.
        withheld: the newest levels that shadow mode did not write; due again once the gateway has started anew without it.
        since: `cluster` seq at which the gateway last started.
        admission: what webhooks look at besides the object that they are asked about.
        judged: uids of pods that came in past the webhooks and were found wanting.
        ahead: outcomes read before their intents.
        slots, lines: what follows from the above: the slots of `newest` by place, and the intents without an outcome
            by place, in the order in which they must be carried out if they come from one context.
    """

    SCHEMA: ClassVar[int] = 4

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.known: dict[str, dict[str, Known]] = {}
        self.pods: dict[str, PodSeen] = {}
        self.acts: dict[Cause, Act] = {}
        self.levels: dict[Cause, Level] = {}
        self.superseded: dict[Cause, Level] = {}
        self.newest: dict[Slot, Cause] = {}
        self.held: dict[Cause, FieldsDesired | ObjectDesired] = {}
        self.withheld: dict[Cause, Withheld] = {}
        self.since = 0
        self.admission = AdmissionView()
        self.judged: dict[str, None] = {}
        self.ahead: dict[Cause, Early] = {}
        self.slots: dict[Place, dict[Slot, None]] = {}
        self.lines: dict[Place, dict[Cause, None]] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Fold one event."""
        event = record.event
        match event:
            case PodObserved(pod=key, pod_uid=uid, object=pod):
                self._pod_observed(key, uid, pod)
            case NodeObserved(node=name, object=node):
                self._observed(NODES.name, name, node.metadata.uid, node)
            case NodeMetricObserved(node=name, object=metric):
                self._observed(NODE_METRICS.name, name, metric.metadata.uid, metric)
            case ObjectObserved(resource=resource, name=name, uid=uid, object=body):
                self._observed(resource, name, uid, body)
            case PodDeleted(pod=key, pod_uid=uid):
                self.pods.pop(uid, None)
                self.judged.pop(uid, None)
                self._deleted(PODS.name, key, uid)
            case NodeDeleted(node=name, node_uid=uid):
                self._deleted(NODES.name, name, uid)
            case NodeMetricDeleted(node=name):
                self._deleted(NODE_METRICS.name, name)
            case ObjectDeleted(resource=resource, name=name, uid=uid):
                self._deleted(resource, name, uid)
            case PodPlaced() | EvictionRequested():
                self._act(Cause(record.context, record.seq), event)
            case PodUnschedulable() | FieldsDesired() | ObjectDesired():
                self._level(Cause(record.context, record.seq), event)
            case _ if record.cause and isinstance(event, OUTCOMES):
                self._answered(record.cause, _says(record))
            case WriterStarted():
                self.since = record.seq
            case AdmissionMissed(uid=uid):
                self.judged[uid] = None
        self.admission.apply(event)
        self.positions[record.context] = record.seq

    # -- observations

    def _observed(self, resource: str, key: str, uid: str, kept: Kept) -> None:
        self.known.setdefault(resource, {})[key] = Known(uid, digest_of(kept))

    def _pod_observed(self, key: str, uid: str, pod: Pod) -> None:
        before = self.known.get(PODS.name, {}).get(key)
        if before and before.uid != uid:
            self.pods.pop(before.uid, None)
            self.judged.pop(before.uid, None)
        scheduled = pod.condition(POD_SCHEDULED)
        self.pods[uid] = PodSeen(
            key,
            node=pod.spec.node_name,
            scheduler=pod.spec.scheduler_name,
            waiting=scheduled is not None and scheduled.status == "False",
            leaving=pod.metadata.deletion_timestamp is not None,
            quota=(pod.metadata.labels or {}).get(QUOTA_NAME, ""),
        )
        self._observed(PODS.name, key, uid, pod)

    def _deleted(self, resource: str, key: str, uid: str = "") -> None:
        objects = self.known.get(resource, {})
        if key in objects and uid in ("", objects[key].uid):
            del objects[key]

    # -- intents and outcomes

    def _act(self, cause: Cause, event: Act) -> None:
        if isinstance(event, PodPlaced):  # the binding itself will set the condition
            self._supersede(Slot(PODS.name, event.pod, cause.context, POD_SCHEDULED))
        if self.ahead.pop(cause, None) is None:
            self.acts[cause] = event
            self._queue(cause, event)

    def _level(self, cause: Cause, event: Level) -> None:
        slot = slot_of(cause.context, event)
        self._supersede(slot)
        self._occupy(slot, cause)
        early = self.ahead.pop(cause, None)
        if early is None:
            self.levels[cause] = event
            self._queue(cause, event)
        else:
            self._settle(cause, event, ENDED if early.written and _ends_written(event) else early.said)

    def _supersede(self, slot: Slot) -> None:
        older = self.newest.get(slot)
        if older is None:
            return
        self.held.pop(older, None)
        self.withheld.pop(older, None)
        unanswered = self.levels.pop(older, None)
        if unanswered is not None:
            self.superseded[older] = unanswered
            self._leave(older, unanswered)
        self._vacate(slot)

    def _answered(self, cause: Cause, said: int) -> None:
        if cause.seq > self.positions.get(cause.context, 0):
            before = self.ahead.get(cause, Early(said, written=False))
            self.ahead[cause] = Early(ENDED if before.said == ENDED else said, before.written or said == WRITTEN)
            return
        self.superseded.pop(cause, None)
        intent = self.acts.pop(cause, None) or self.levels.pop(cause, None)
        if intent is not None:
            self._leave(cause, intent)
        withheld = self.withheld.pop(cause, None)
        level = intent or self.held.pop(cause, None) or (withheld.level if withheld else None)
        if isinstance(level, Level):
            self._settle(cause, level, said)

    def _settle(self, cause: Cause, level: Level, said: int) -> None:
        """A newest level was answered: from here on it is held or withheld, or it has ended."""
        if said not in (ENDED, WRITTEN):
            self.withheld[cause] = Withheld(level, said)
        elif said == ENDED or _ends_written(level):
            self._vacate(slot_of(cause.context, level))
        else:
            assert not isinstance(level, PodUnschedulable), "it has ended"
            self.held[cause] = level

    def _occupy(self, slot: Slot, cause: Cause) -> None:
        self.newest[slot] = cause
        self.slots.setdefault(Place(slot.resource, slot.key), {})[slot] = None

    def _vacate(self, slot: Slot) -> None:
        del self.newest[slot]
        place = Place(slot.resource, slot.key)
        there = self.slots[place]
        del there[slot]
        if not there:
            del self.slots[place]

    def _queue(self, cause: Cause, intent: Intent) -> None:
        self.lines.setdefault(place_of(intent), {})[cause] = None

    def _leave(self, cause: Cause, intent: Intent) -> None:
        place = place_of(intent)
        line = self.lines[place]
        del line[cause]
        if not line:
            del self.lines[place]

    # -- snapshots

    def encode(self) -> bytes:
        """Canonical: see `shared.fold.State`."""
        return _ENCODER.encode(
            _Stored(
                positions=self.positions,
                known={resource: objects for resource, objects in self.known.items() if objects},
                pods=self.pods,
                acts=_by_context(self.acts.items()),
                levels=_by_context(self.levels.items()),
                superseded=_by_context(self.superseded.items()),
                held=_by_context(self.held.items()),
                withheld=_by_context(self.withheld.items()),
                since=self.since,
                ahead=_by_context(self.ahead.items()),
                admission=self.admission.stored(),
                judged=sorted(self.judged),
            )
        )

    def restore(self, data: bytes) -> None:
        """Take over what `encode` wrote."""
        stored = _DECODER.decode(data)
        self.positions, self.known, self.pods = stored.positions, stored.known, stored.pods
        self.acts, self.levels = _by_cause(stored.acts), _by_cause(stored.levels)
        self.superseded = _by_cause(stored.superseded)
        self.held, self.ahead = _by_cause(stored.held), _by_cause(stored.ahead)
        self.withheld, self.since = _by_cause(stored.withheld), stored.since
        self.admission.restore(stored.admission)
        self.judged = dict.fromkeys(stored.judged)
        waiting = [(cause, withheld.level) for cause, withheld in self.withheld.items()]
        for cause, level in (*self.levels.items(), *self.held.items(), *waiting):
            self._occupy(slot_of(cause.context, level), cause)
        for cause, intent in sorted((*self.acts.items(), *self.levels.items()), key=itemgetter(0)):
            self._queue(cause, intent)


def _ends_written(level: Level) -> bool:
    """Reports whether a level has ended once it was written: a pod's condition, and the absence of an object."""
    return isinstance(level, PodUnschedulable) or (isinstance(level, ObjectDesired) and level.body is None)


def _says(record: RecordedEvent) -> int:
    """What an outcome says of a level."""
    if isinstance(record.event, DesiredStateSuppressed):
        return record.seq
    return WRITTEN if isinstance(record.event, DesiredStateApplied) else ENDED


def digest_of(kept: Kept) -> bytes:
    """Sixteen bytes that differ when a kept field differs."""
    encoded = _SORTED.encode(kept) if isinstance(kept, dict) else _JSON.encode(kept)
    return blake2b(encoded, digest_size=16).digest()


class _Stored(msgspec.Struct):
    """What `encode` writes. What concerns intents is kept by context, in order of seq."""

    positions: dict[str, int]
    known: dict[str, dict[str, Known]]
    pods: dict[str, PodSeen]
    acts: dict[str, list[tuple[int, Act]]]
    levels: dict[str, list[tuple[int, Level]]]
    superseded: dict[str, list[tuple[int, Level]]]
    held: dict[str, list[tuple[int, FieldsDesired | ObjectDesired]]]
    withheld: dict[str, list[tuple[int, Withheld]]]
    since: int
    ahead: dict[str, list[tuple[int, Early]]]
    admission: Stored
    judged: list[str]


_JSON = msgspec.json.Encoder()
_SORTED = msgspec.json.Encoder(order="sorted")
_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER = msgspec.msgpack.Decoder(_Stored)


def _by_context(items: Iterable[tuple[Cause, Any]]) -> dict[str, list[tuple[int, Any]]]:
    grouped: dict[str, list[tuple[int, Any]]] = {}
    for cause, item in sorted(items, key=itemgetter(0)):
        grouped.setdefault(cause.context, []).append((cause.seq, item))
    return grouped


def _by_cause(stored: dict[str, list[tuple[int, Any]]]) -> dict[Cause, Any]:
    return {Cause(context, seq): item for context, items in stored.items() for seq, item in items}
