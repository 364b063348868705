"""Sharded contexts: `metrics-*` stands for `metrics-0`, `metrics-1` ..., one a shard.

Reports of many nodes are too much for one writer, so their contexts are sharded by a hash of the node. A manifest
contains the sharded name; the installation sets the number of shards (`KOORD_METRICS_SHARDS`).
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
    """Settings of a whole installation: `KOORD_<FIELD>`."""

    metrics_shards: Shards = 1


class NoSuchShard(KoordError):
    """A sharded service is configured as a shard that does not exist."""

    def __init__(self, name: str, shard: int, shards: int) -> None:
        super().__init__(
            f"KOORD_SHARD is {shard} for {name}, and KOORD_METRICS_SHARDS is {shards}; give a shard of 0 to {shards - 1}"
        )


def is_sharded(context: str) -> bool:
    """Reports whether a name in a manifest stands for several contexts."""
    return context.endswith(SUFFIX)


def declared_name(context: str) -> str:
    """`metrics-2` -> `metrics-*`: the name in a manifest of a context."""
    stem, _, shard = context.rpartition("-")
    return f"{stem}{SUFFIX}" if stem and shard.isdigit() else context


def member(sharded: str, shard: int) -> str:
    """`metrics-*`, 2 -> `metrics-2`."""
    return sharded.removesuffix("*") + str(shard)


def members(contexts: Iterable[str], shards: int) -> list[str]:
    """Returns the contexts of the names in a manifest, in their order."""
    return [name for declared in contexts for name in _of(declared, shards)]


def expanded(declared: Mapping[str, _T], shards: int) -> dict[str, _T]:
    """Converts a mapping by manifest name into one by context."""
    return {name: value for context, value in declared.items() for name in _of(context, shards)}


def stream_members(streams: Iterable[str], shards: int) -> list[str]:
    """Returns the streams of the names in a manifest: `KOORD_EVENTS_METRICS_*` -> `KOORD_EVENTS_METRICS_0` ..."""
    return [
        name.removesuffix("*") + str(shard)
        for name in streams
        for shard in (range(shards) if name.endswith("_*") else ("",))
    ]


def shard_of(name: str, shards: int) -> int:
    """Returns the shard of an object, by BLAKE2b of its name; the same on every machine."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") % shards


def _of(declared: str, shards: int) -> list[str]:
    return [member(declared, shard) for shard in range(shards)] if is_sharded(declared) else [declared]
