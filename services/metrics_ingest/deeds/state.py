"""What must be known to believe a deed: which pods are on which node, and which deeds have been told already."""

from typing import ClassVar, NamedTuple

import msgspec

from shared.events import Event, Recorded
from shared.events.cluster import PodDeleted, PodObserved
from shared.events.nodes import DEEDS, BestEffortSuppressed, EvictionWanted, PodBurst, PodKilled
from shared.kube.annotations import MIRROR
from shared.kube.pod import Pod

FOLDED: dict[str, tuple[type[Event], ...]] = {"cluster": (PodObserved, PodDeleted), "nodes-*": DEEDS}
"""Context -> event types folded; the others pass."""

NUMBERS_KEPT = 256
"""Of one run of an agent: how many of its newest deeds are remembered, to know a repeat. An older number counts as one."""

_ENDED = frozenset(("Succeeded", "Failed"))


class OnNode(NamedTuple):
    """A pod that runs on a node.

    Attributes:
        pod: `namespace/name`.
        static: the node itself runs it; the API only shows it.
    """

    pod: str
    node: str
    static: bool = False


class Told(NamedTuple):
    """The deeds of an agent's last run: their numbers, the newest NUMBERS_KEPT, sorted."""

    boot: str
    numbers: tuple[int, ...]


class DeedsState:
    """A fold over `cluster` and our own deeds.

    Attributes:
        pods: uid as nodes know it -> the pod, while it runs.
        static: uid of a static pod's image -> the uid under which its node runs it.
        told: node -> the deeds of its agent that were recorded.
    """

    SCHEMA: ClassVar[int] = 1

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.pods: dict[str, OnNode] = {}
        self.static: dict[str, str] = {}
        self.told: dict[str, Told] = {}

    def apply(self, record: Recorded) -> None:
        """Fold one event."""
        match record.event:
            case PodObserved(pod=key, pod_uid=uid, object=pod):
                self._pod_observed(key, uid, pod)
            case PodDeleted(pod_uid=uid):
                self.pods.pop(self.static.pop(uid, uid), None)
            case BestEffortSuppressed() | PodBurst() | PodKilled() | EvictionWanted() as deed:
                self.told[deed.node] = with_number(self.told.get(deed.node), deed.boot, deed.number)
        self.positions[record.context] = record.seq

    def _pod_observed(self, key: str, api_uid: str, pod: Pod) -> None:
        uid = (pod.metadata.annotations or {}).get(MIRROR) or api_uid
        if uid != api_uid:
            self.static[api_uid] = uid
        if not pod.spec.node_name or pod.status.phase in _ENDED:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = OnNode(key, pod.spec.node_name, uid != api_uid)

    def encode(self) -> bytes:
        """Canonical: see `shared.fold.State`."""
        return _ENCODER.encode(_Stored(self.positions, self.pods, self.static, self.told))

    def restore(self, data: bytes) -> None:
        """Take over what `encode` wrote."""
        stored = _DECODER.decode(data)
        self.positions, self.pods, self.static, self.told = stored.positions, stored.pods, stored.static, stored.told


def is_told(told: Told | None, boot: str, number: int) -> bool:
    """Whether a deed was recorded before."""
    if told is None or told.boot != boot:
        return False
    return number in told.numbers or (len(told.numbers) == NUMBERS_KEPT and number < told.numbers[0])


def with_number(told: Told | None, boot: str, number: int) -> Told:
    """The deeds told, with one more; those of another run are forgotten."""
    before = told.numbers if told is not None and told.boot == boot else ()
    return Told(boot, tuple(sorted({*before, number}))[-NUMBERS_KEPT:])


class _Stored(msgspec.Struct):
    """What `encode` writes."""

    positions: dict[str, int]
    pods: dict[str, OnNode]
    static: dict[str, str]
    told: dict[str, Told]


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER = msgspec.msgpack.Decoder(_Stored)
