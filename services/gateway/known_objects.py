"""Objects and pods that the gateway's State records: uid, a digest of the kept fields, and a pod's node and flags."""

import re
from hashlib import blake2b

import msgspec

from services.gateway.kube_api.decoding import KeptObject

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_JSON = msgspec.json.Encoder()
_SORTED = msgspec.json.Encoder(order="sorted")

# With a packed uid and Python's header of 33 bytes an identity then takes 64 bytes, a size class of the allocator.
DIGEST_BYTES = 15
UUID_BYTES = 16

UNSCHEDULABLE, TERMINATING = 1, 2
"""Flags of a pod."""


class KnownObject(msgspec.Struct, gc=False, array_like=True):
    """The last record of an object.

    A large cluster has one for each pod, so it is one small allocation: `gc=False` because it can be in no cycle.

    Attributes:
        identity: digest and uid of the object: see `identity_of`.
    """

    identity: bytes

    @property
    def uid(self) -> str:
        """Returns the uid."""
        packed = self.identity[DIGEST_BYTES:]
        if len(packed) != UUID_BYTES:
            return packed.rstrip(b"\0").decode()
        text = packed.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class ObservedPod(KnownObject, gc=False):
    """The last record of a pod, and its fields that effects and webhooks need.

    Attributes:
        node: the node to which it is bound; empty if to none.
        scheduler: its `schedulerName`.
        quota: the quota that its label names.
        flags: UNSCHEDULABLE and TERMINATING, or neither.
        workload: kind and name of its controller; empty without one.
    """

    node: str = ""
    scheduler: str = ""
    quota: str = ""
    flags: int = 0
    workload: str = ""

    @property
    def unschedulable(self) -> bool:
        """Returns whether it has the condition PodScheduled=False."""
        return bool(self.flags & UNSCHEDULABLE)

    @property
    def terminating(self) -> bool:
        """Returns whether it has a deletion timestamp."""
        return bool(self.flags & TERMINATING)


def identity_of(uid: str, kept: KeptObject) -> bytes:
    """Returns bytes that differ if the uid or a kept field differs: a digest of the fields, and the uid.

    A uid as the API server makes it is packed into sixteen bytes, less than a quarter of the string.
    """
    if _UUID(uid):
        return digest_of(kept) + bytes.fromhex(uid.replace("-", ""))
    text = uid.encode()
    # Of this length it would be read as a packed UUID.
    return digest_of(kept) + (text + b"\0" if len(text) == UUID_BYTES else text)


def digest_of(kept: KeptObject) -> bytes:
    """Returns DIGEST_BYTES bytes that differ if a kept field differs."""
    encoded = _SORTED.encode(kept) if isinstance(kept, dict) else _JSON.encode(kept)
    return blake2b(encoded, digest_size=DIGEST_BYTES).digest()
