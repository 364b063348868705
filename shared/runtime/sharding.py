"""Families of contexts: `metrics-*` stands for `metrics-0`, `metrics-1` ..., one a shard.

Reports of many nodes are too much for one writer, so their contexts are sharded by a hash of the node. A declaration names
the family; how many members it has is the installation's business (`KOORD_METRICS_SHARDS`).
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Annotated, TypeVar

from msgspec import Meta

from shared.errors import KoordError
from shared.settings import Settings

_T = TypeVar("_T")

SUFFIX = "-*"


Shards = Annotated[int, Meta(ge=1, le=256, description="shards of metrics-* and nodes-*; the same everywhere")]


class Installation(Settings, frozen=True, kw_only=True):
    """What holds for all services of an installation: `KOORD_<FIELD>`."""

    metrics_shards: Shards = 1


class NoSuchShard(KoordError):
    """A sharded service was told to be a member that does not exist."""

    def __init__(self, name: str, shard: int, shards: int) -> None:
        super().__init__(
            f"KOORD_SHARD is {shard} for {name}, and KOORD_METRICS_SHARDS is {shards}; give a shard of 0 to {shards - 1}"
        )


def is_family(context: str) -> bool:
    """Whether a declared name stands for several contexts."""
    return context.endswith(SUFFIX)


def member(family: str, shard: int) -> str:
    """`metrics-*`, 2 -> `metrics-2`."""
    return family.removesuffix("*") + str(shard)


def members(contexts: Iterable[str], shards: int) -> list[str]:
    """The contexts that declared names stand for, in their order."""
    return [name for declared in contexts for name in _of(declared, shards)]


def expanded(declared: Mapping[str, _T], shards: int) -> dict[str, _T]:
    """A mapping by declared name as one by context."""
    return {name: value for context, value in declared.items() for name in _of(context, shards)}


def stream_members(streams: Iterable[str], shards: int) -> list[str]:
    """The streams that declared names stand for: `KOORD_EVENTS_METRICS_*` -> `KOORD_EVENTS_METRICS_0` ..."""
    return [
        name.removesuffix("*") + str(shard)
        for name in streams
        for shard in (range(shards) if name.endswith("_*") else ("",))
    ]


def shard_of(name: str, shards: int) -> int:
    """The shard that an object belongs to, by BLAKE2b of its name; the same on every machine."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") % shards


def _of(declared: str, shards: int) -> list[str]:
    return [member(declared, shard) for shard in range(shards)] if is_family(declared) else [declared]
