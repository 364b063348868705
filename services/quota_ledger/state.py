"""What the ledger knows: quotas, nodes and pods as `cluster` has them, placements of `scheduling`, and its own books.

Each context writes fields of its own. What they amount to for one pod is `wanted`; where the books say otherwise, the pod is `due`.
"""

from typing import Any, ClassVar, NamedTuple

import msgspec

from services.quota_ledger.books import Books, Held
from services.quota_ledger.image import BooksImage, image_of, restored
from services.quota_ledger.profile_view import ProfilesImage, ProfileView
from services.quota_ledger.published import Published, Told
from services.quota_ledger.resolve import ENDED, counted_request, is_preemptible
from shared.admission.elastic_quota import check_self
from shared.admission.refused import Refused
from shared.domain.amounts import Amounts, mask, sub, total
from shared.events import Event, Recorded
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    BindWithheld,
    MissingPermission,
    NodeDeleted,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import FieldsDecided, ObjectDecided
from shared.events.log import WriterStarted
from shared.events.quota import (
    CapacitySet,
    OveruseEnded,
    OveruseStarted,
    PodAdmissionDecided,
    PodAttached,
    PodCharged,
    PodMoved,
    PodReleased,
    PodResized,
    PodUncharged,
    QuotaAmended,
    QuotaDeclared,
    QuotaRejected,
    QuotaReparented,
    QuotaRetired,
    RevocationDecided,
    RuntimeRecomputed,
)
from shared.events.scheduling import PodPlaced, RoundDecided
from shared.kube.elastic_quota import QUOTA_NAME, RESERVED, RESOURCES, ROOT, DeclaredQuota, declared
from shared.kube.instants import BadTime, instant_ns
from shared.kube.pod import Pod
from shared.kube.quantity import BadQuantity, amounts

OWN: tuple[type[Event], ...] = (
    CapacitySet, OveruseEnded, OveruseStarted, PodAdmissionDecided, PodAttached, PodCharged, PodMoved, PodReleased, PodResized, PodUncharged,
    QuotaAmended, QuotaDeclared, QuotaRejected, QuotaReparented, QuotaRetired, RevocationDecided, RuntimeRecomputed,
)  # fmt: skip
FOLDED: dict[str, tuple[type[Event], ...]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodDeleted, ObjectObserved, ObjectDeleted, BindRejected, BindFailed, BindWithheld,
        MissingPermission,
    ),
    "scheduling": (WriterStarted, PodPlaced, RoundDecided),
    "quota": (*OWN, FieldsDecided, ObjectDecided),
}  # fmt: skip
"""Context -> event types folded; the others pass."""

LARGEST = 2**63 - 1
"""More than this a log cannot hold; as a limit it is none."""

STOCK_MAX = {"cpu": LARGEST, "memory": LARGEST // 5}
"""Of the system and default groups, unless their objects say otherwise."""


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod as `cluster` has it, as far as quota asks.

    Attributes:
        label: the quota it names.
        request: everything it asks for; what a quota counts of it depends on the quota.
        started_ns: 0 while it has not.
    """

    pod: str
    namespace: str
    label: str
    request: dict[str, int]
    node: str = ""
    preemptible: bool = True
    priority: int = 0
    started_ns: int = 0
    ended: bool = False


class Placed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Our scheduler's newest word on a pod, and whether it was refused.

    Attributes:
        seq, round: of the newest PodPlaced, or of the RoundDecided that announces it.
        refused_seq: of the newest PodPlaced that was answered with anything but a binding.
    """

    seq: int = 0
    round: int = 0
    refused_seq: int = 0


class Fault(NamedTuple):
    """Why an ElasticQuota's newest object is not followed."""

    name: str
    code: str
    reason: str


class LedgerState:
    """A fold over `cluster`, `scheduling` and `quota`.

    Attributes:
        objects: key of an ElasticQuota -> what it last declared that was good in itself; faults: what is wrong with it since.
        seen, placed: pods by uid.
        books: what the own log says; published: what it has told the objects.
        profiles: ElasticQuotaProfiles, and what their nodes come to.
        epoch, round: of the scheduler's newest WriterStarted and RoundDecided: an ask of an earlier one, or of a round that is
            decided, is over.
        due: uids of pods of which the books say something else than what is wanted.
        quotas_due: names of quotas that may be declared otherwise than the books have them.
        structure_changes, structure_judged: how often quotas or their objects have changed in this process, and at which of these
            there was nothing to record.
    """

    SCHEMA: ClassVar[int] = 2

    def __init__(self, *, scales_min: bool = True, guarantees: bool = False, default_group: bool = True) -> None:
        self.positions: dict[str, int] = {}
        self.books = Books(scales_min=scales_min, guarantees=guarantees, default_group=default_group)
        self.published = Published()
        self.profiles = ProfileView()
        self.objects: dict[str, DeclaredQuota] = {}
        self.faults: dict[str, Fault] = {}
        self.nodes: dict[str, Amounts] = {}
        self.seen: dict[str, Seen] = {}
        self.placed: dict[str, Placed] = {}
        self.round_saw = 0
        self.epoch = 0
        self.round = 0
        self.due: dict[str, None] = {}
        self.quotas_due: dict[str, None] = {}
        self._asked: dict[str, None] = {}  # pods whose charge rests on an ask of a round that is not over
        self._of_nodes: Amounts | None = None
        self._roots: list[DeclaredQuota] | None = None
        self.structure_changes = 0
        self.structure_judged = -1
        self._of_label: dict[str, dict[str, None]] = {}
        self._in_namespace: dict[str, dict[str, None]] = {}
        self._keys_of: dict[str, dict[str, None]] = {}
        for name in RESERVED:
            self._look_at_quota(name)

    def apply(self, record: Recorded) -> None:
        """Fold one event."""
        match record.context:
            case "quota":
                self._own(record.event)
                self.published.apply(record)
            case "scheduling":
                self._scheduling(record)
            case _:
                self._cluster(record)
        self.positions[record.context] = record.seq

    def total(self, tree: str) -> Amounts:
        """What a tree should have: the nodes' for the default one less what the others take, an annotation's for another."""
        roots = self.declared_roots()
        if tree:
            root = next((quota for quota in roots if quota.tree == tree), None)
            return self._total_of(root) if root else {}
        if self._of_nodes is None:
            self._of_nodes = total(node for _, node in sorted(self.nodes.items()))
        sums = dict(self._of_nodes)
        for quota in roots:
            if not quota.ignores_default_tree:
                sums = sub(sums, self._total_of(quota))
        return sums

    def _total_of(self, root: DeclaredQuota) -> Amounts:
        """An annotation that is missing or cannot be read changes nothing."""
        if root.total is not None:
            return root.total
        found = self.books.trees.get(root.tree)
        return found.total if found else {}

    def declared_roots(self) -> list[DeclaredQuota]:
        """Roots of other trees that are in force."""
        if self._roots is None:
            quotas = sorted(self.books.names.quotas.items())
            self._roots = [quota for _, quota in quotas if quota.is_root and quota.tree]
        return self._roots

    def object_of(self, name: str) -> DeclaredQuota | None:
        """What the object of that name declares; of several in different namespaces, the first by key.

        The system and default groups are there without an object too. The root's object declares nothing.
        """
        if name == ROOT:
            return None
        keys = self._keys_of.get(name)
        if keys:
            return msgspec.structs.replace(self.objects[min(keys)], deleting=False)
        return DeclaredQuota(name=name, max=STOCK_MAX, weight=STOCK_MAX) if name in RESERVED else None

    def fault_of(self, name: str) -> "Fault | None":
        """What is wrong with the newest object of that name in itself; its last good declaration stays."""
        return min((fault for fault in self.faults.values() if fault.name == name), default=None)

    def place_of(self, name: str) -> tuple[str, str]:
        """`resource/namespace/name` of a quota's object, and its uid; both empty where there is none."""
        keys = self._keys_of.get(name)
        return (min(keys), self.objects[min(keys)].uid) if keys else ("", "")

    def wanted(self, uid: str) -> Held | None:
        """What a pod should hold, by all that has been read; None when nothing."""
        seen = self.seen.get(uid)
        if seen is None or seen.ended:
            return None
        quota, how = self.books.names.resolve(seen.namespace, {QUOTA_NAME: seen.label})
        tree = self.books.tree_of.get(quota)
        if tree is None:
            return None
        counted = self.books.trees[tree].accounts[quota].declared.max
        return Held(
            seen.pod,
            tree,
            quota,
            mask(seen.request, counted),
            seen.preemptible,
            charged=bool(seen.node) or self.is_placed(uid) or self.is_asked_for(uid),
            how=how,
        )

    def is_placed(self, uid: str) -> bool:
        """Whether our scheduler has placed the pod, and nobody refused that."""
        placed = self.placed.get(uid)
        return placed is not None and placed.seq > placed.refused_seq

    def is_over(self, epoch: int, number: int) -> bool:
        """Whether a round of the scheduler can place nothing any more that it has not placed."""
        return epoch < self.epoch or number <= self.round

    def is_asked_for(self, uid: str) -> bool:
        """Whether the pod is charged for a round that may yet place it."""
        held = self.books.pods.get(uid)
        return held is not None and held.charged and held.epoch > 0 and not self.is_over(held.epoch, held.round)

    def encode(self) -> bytes:
        """Everything, names sorted."""
        image = StateImage(
            positions=self.positions,
            books=image_of(self.books),
            told=self.published.told,
            profiles=self.profiles.image(),
            objects=self.objects,
            faults=self.faults,
            nodes=self.nodes,
            seen=self.seen,
            placed=self.placed,
            round_saw=self.round_saw,
            epoch=self.epoch,
            round=self.round,
        )
        return _ENCODER.encode(image)

    def restore(self, data: bytes) -> None:
        """Take over what `encode` wrote."""
        image = msgspec.msgpack.decode(data, type=StateImage)
        self.positions, self.round_saw = image.positions, image.round_saw
        self.epoch, self.round = image.epoch, image.round
        self.objects, self.nodes, self.placed = image.objects, image.nodes, image.placed
        self.faults = image.faults
        restored(self.books, image.books)
        self.published.restore(image.told, self.books)
        self.profiles.restore(image.profiles)
        for uid, seen in image.seen.items():
            self._put(uid, seen)
        for uid in self.books.pods:
            self._look(uid)
        for key, quota in self.objects.items():
            self._keys_of.setdefault(quota.name, {})[key] = None
        faulty = [fault.name for fault in self.faults.values()]
        for name in {*self._keys_of, *self.books.tree_of, *self.books.rejected, *faulty, *RESERVED}:
            self._look_at_quota(name)

    def _cluster(self, record: Recorded) -> None:
        self.profiles.apply(record.event)
        match record.event:
            case PodObserved(pod_uid=uid, object=pod):
                self._put(uid, seen_of(pod))
            case PodDeleted(pod_uid=uid):
                self._forget(uid)
            case NodeObserved(node=name, object=node):
                self.nodes[name] = _readable(node.status.allocatable)
                self._of_nodes = None
            case NodeDeleted(node=name):
                self.nodes.pop(name, None)
                self._of_nodes = None
            case ObjectObserved(resource=resource, name=key, object=raw) if resource in RESOURCES:
                self._object(f"{resource}/{key}", raw)
            case ObjectDeleted(resource=resource, name=key) if resource in RESOURCES:
                self._object_gone(f"{resource}/{key}")
            case (
                BindRejected(pod_uid=uid)
                | BindFailed(pod_uid=uid)
                | BindWithheld(pod_uid=uid)
                | MissingPermission(pod_uid=uid)
            ):
                placed = self.placed.get(uid, Placed())
                cause = record.cause
                if cause is not None and cause.context == "scheduling" and uid in self.seen:
                    refused = max(placed.refused_seq, cause.seq)
                    self.placed[uid] = msgspec.structs.replace(placed, refused_seq=refused)
                    self._look(uid)

    def _scheduling(self, record: Recorded) -> None:
        match record.event:
            case WriterStarted(epoch=epoch):
                self.epoch = epoch
                self._look_at_asked()
            case RoundDecided(seen=seen, round=number, pods=outcomes):
                self.round_saw = (seen or {}).get("cluster", 0)
                self.round = number
                for outcome in outcomes:
                    if outcome.node:  # its PodPlaced follows; until that is read the charge must not be given back
                        self._place(outcome.pod_uid, number, record.seq)
                self._look_at_asked()
            case PodPlaced(pod_uid=uid, round=number):
                self._place(uid, number, record.seq)

    def _place(self, uid: str, number: int, seq: int) -> None:
        # The round saw this pod; absent although we have read as far means gone for good.
        if uid in self.seen or self.positions.get("cluster", 0) < self.round_saw:
            placed = self.placed.get(uid, Placed())
            self.placed[uid] = msgspec.structs.replace(placed, seq=seq, round=number)
            self._look(uid)

    def _own(self, event: Event) -> None:
        before = None
        if isinstance(event, QuotaDeclared | QuotaAmended | QuotaReparented | QuotaRetired):
            before = self.books.names.quotas.get(event.quota)
        self.published.touch(event, self.books)
        self.books.apply(event)
        self.published.touch(event, self.books)
        match event:
            case (
                QuotaDeclared(quota=name)
                | QuotaAmended(quota=name)
                | QuotaReparented(quota=name)
                | QuotaRetired(quota=name)
            ):
                self.structure_changes += 1
                self._roots = None
                self._look_at_quota(name)
                after = self.books.names.quotas.get(name)
                spaces = {space for quota in (before, after) if quota for space in spaces_of(quota)}
                uids = [self._of_label.get(name, {}), self.books.pods_of.get(name, {})]
                uids += [self._in_namespace.get(space, {}) for space in sorted(spaces)]
                for group in uids:
                    for uid in list(group):
                        self._look(uid)
                if name in RESERVED and before is None:
                    for uid in self.seen:
                        self._look(uid)
            case QuotaRejected(quota=name):
                self.structure_changes += 1
                self._look_at_quota(name)
            case PodAttached() | PodCharged() | PodUncharged() | PodReleased() | PodResized() | PodMoved():
                self._look(event.pod_uid)

    def _object(self, key: str, raw: dict[str, Any]) -> None:
        self.structure_changes += 1
        name = raw["metadata"]["name"]
        before, fault = self.objects.get(key), None
        try:
            after = _bounded(declared(raw))
            if after != before:
                check_self(raw, after)
        except BadQuantity as error:
            fault = Fault(name, "unreadable", f"quota {name}: {error}")
        except Refused as error:
            fault = Fault(name, error.code, str(error))
        if fault is not None:
            self.faults[key] = fault  # the last good one stays
            self._look_at_quota(name)
            return
        self.faults.pop(key, None)
        self.objects[key] = after
        self._keys_of.setdefault(after.name, {})[key] = None
        self._look_at_quota(after.name)

    def _object_gone(self, key: str) -> None:
        self.structure_changes += 1
        fault, gone = self.faults.pop(key, None), self.objects.pop(key, None)
        if gone is not None:
            self._keys_of[gone.name].pop(key)
        if (there := gone or fault) is not None:
            self._look_at_quota(there.name)

    def _put(self, uid: str, seen: Seen) -> None:
        self._unindex(uid)
        self.seen[uid] = seen
        self._in_namespace.setdefault(seen.namespace, {})[uid] = None
        if seen.label:
            self._of_label.setdefault(seen.label, {})[uid] = None
        self._look(uid)

    def _forget(self, uid: str) -> None:
        self._unindex(uid)
        self.seen.pop(uid, None)
        self.placed.pop(uid, None)
        self._look(uid)

    def _unindex(self, uid: str) -> None:
        if (seen := self.seen.get(uid)) is not None:
            self._in_namespace[seen.namespace].pop(uid, None)
            self._of_label.get(seen.label, {}).pop(uid, None)

    def _look_at_asked(self) -> None:
        for uid in list(self._asked):
            self._look(uid)

    def _look(self, uid: str) -> None:
        if self.is_asked_for(uid):
            self._asked[uid] = None
        else:
            self._asked.pop(uid, None)
        if same(self.books.pods.get(uid), self.wanted(uid)):
            self.due.pop(uid, None)
        else:
            self.due[uid] = None

    def _look_at_quota(self, name: str) -> None:
        is_so = self.books.names.quotas.get(name) == self.object_of(name)
        fault = self.fault_of(name)
        if is_so and self.books.rejected.get(name, "") == (fault.reason if fault else ""):
            self.quotas_due.pop(name, None)
        else:
            self.quotas_due[name] = None


class StateImage(msgspec.Struct, frozen=True):
    """What a snapshot holds."""

    positions: dict[str, int]
    books: BooksImage
    told: dict[str, Told]
    profiles: ProfilesImage
    objects: dict[str, DeclaredQuota]
    faults: dict[str, Fault]
    nodes: dict[str, Amounts]
    seen: dict[str, Seen]
    placed: dict[str, Placed]
    round_saw: int
    epoch: int
    round: int


def spaces_of(quota: DeclaredQuota) -> tuple[str, ...]:
    """The namespaces whose pods may belong to a quota without naming it: those bound to it, and its own if it has that name."""
    return (quota.namespace, *quota.namespaces) if quota.name == quota.namespace else quota.namespaces


def same(held: Held | None, wanted: Held | None) -> bool:
    """Whether the books hold what is wanted; the round that asked is of no account."""
    if held is None or wanted is None:
        return held is wanted
    return (held.quota, held.tree, held.request, held.preemptible, held.charged) == (
        wanted.quota,
        wanted.tree,
        wanted.request,
        wanted.preemptible,
        wanted.charged,
    )


def seen_of(pod: Pod) -> Seen:
    """A pod as far as quota asks."""
    try:
        started = instant_ns(pod.status.start_time) if pod.status.start_time else 0
    except BadTime:
        started = 0
    return Seen(
        pod=pod.metadata.key,
        namespace=pod.metadata.namespace,
        label=(pod.metadata.labels or {}).get(QUOTA_NAME, ""),
        request=counted_request(pod),
        node=pod.spec.node_name,
        preemptible=is_preemptible(pod),
        priority=pod.spec.priority or 0,
        started_ns=started,
        ended=pod.status.phase in ENDED,
    )


def _bounded(quota: DeclaredQuota) -> DeclaredQuota:
    if all(size <= LARGEST for each in (quota.min, quota.max, quota.weight) for size in each.values()):
        return quota
    smaller = (
        {name: min(size, LARGEST) for name, size in each.items()} for each in (quota.min, quota.max, quota.weight)
    )
    return msgspec.structs.replace(quota, **dict(zip(("min", "max", "weight"), smaller, strict=True)))


def _readable(quantities: dict[str, str] | None) -> Amounts:
    try:
        return amounts(quantities or {})
    except BadQuantity:
        return {}


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
