"""The controllers of a pod on a node, in one bytes object that all pods of a workload share.

A Reservation with pre-allocation names pods on a node by their controller. Owner references as objects would take some
500 bytes for each of hundreds of thousands of pods.
"""

from functools import lru_cache

import msgspec

from shared.kube.meta import OwnerReference

_Packed = tuple[tuple[str, str, str, str, bool | None], ...]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Packed)


def packed(references: tuple[OwnerReference, ...]) -> bytes:
    """Packs owner references; empty bytes for none."""
    return _packed(references) if references else b""


@lru_cache(maxsize=8_192)
def _packed(references: tuple[OwnerReference, ...]) -> bytes:
    return _encoder.encode([(each.api_version, each.kind, each.name, each.uid, each.controller) for each in references])


def unpacked(data: bytes) -> tuple[OwnerReference, ...]:
    """Returns the references that `packed` has packed."""
    if not data:
        return ()
    return tuple(
        OwnerReference(api_version=api_version, kind=kind, name=name, uid=uid, controller=controller)
        for api_version, kind, name, uid, controller in _decoder.decode(data)
    )
