"""Resctrl: shares of last-level cache and memory bandwidth, as schemata of the groups LSR, LS and BE.

Source: spec/node-agent.md 3.6.

Q: a CPU vendor that is neither Intel nor AMD counts as Intel.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from shared.domain.qos import QoS, qos
from shared.errors import KoordError
from shared.kube.json_text import read_json
from shared.kube.pod import Pod

ANNOTATION = "node.koordinator.sh/resctrl"
"""A pod with this annotation has a group of its own."""
GROUPS = ("LSR", "LS", "BE")
AMD = "AuthenticAMD"
_GROUP_OF = {QoS.LSE: "LSR", QoS.LSR: "LSR", QoS.LS: "LS", QoS.BE: "BE"}


def group_of(pod: Pod) -> str | None:
    """Returns the group of a pod's processes; None for SYSTEM pods."""
    return _GROUP_OF.get(qos(pod))


def cache_mask(root: str, start_percent: int, end_percent: int) -> int | None:
    """Returns the ways of the cache from one percentage to another, rounded up; None for an empty range.

    Args:
        root: the mask of all ways, hexadecimal.
    """
    whole = int(root, 16)
    ways = whole.bit_length()
    if whole != (1 << ways) - 1 or not 0 <= start_percent < end_percent <= 100:
        return None
    start, end = -(-ways * start_percent // 100), -(-ways * end_percent // 100)
    return (1 << end) - (1 << start)


def bandwidth(percent: int, vendor: str) -> int | None:
    """Returns the value of MB: tens of percent for Intel, eighths of GB/s for AMD (2048 for all).

    None when it is not a percentage.
    """
    if not 0 < percent <= 100:
        return None
    if vendor == AMD:
        return 2048 if percent == 100 else 160 * percent // 100
    return -(-percent // 10) * 10


def schemata_line(kind: str, value: str, caches: Iterable[int]) -> str:
    """Returns a line of schemata with one value for all caches, such as `L3:0=f;1=f;`, with its newline."""
    return schemata_lines(kind, dict.fromkeys(caches, value))


def schemata_lines(kind: str, values: Mapping[int, str]) -> str:
    """Returns a line of schemata with a value for each cache; empty without any."""
    return f"{kind}:{''.join(f'{cache}={values[cache]};' for cache in sorted(values))}\n" if values else ""


class Shares(NamedTuple):
    """The shares of a group; None and absent caches: the root's.

    Attributes:
        mask, share: ways of each cache, and the value of MB.
        mask_of, share_of: of single caches, by their ids.
    """

    mask: int | None = None
    share: int | None = None
    mask_of: Mapping[int, int] = {}
    share_of: Mapping[int, int] = {}

    def masks(self, caches: Iterable[int]) -> dict[int, int]:
        """Returns the ways by cache, of the present caches."""
        return {cache: mask for cache in caches if (mask := self.mask_of.get(cache, self.mask or 0))}

    def bandwidths(self, caches: Iterable[int]) -> dict[int, int]:
        """Returns the values of MB by cache, of the present caches."""
        return {cache: share for cache in caches if (share := self.share_of.get(cache, self.share or 0))}


class BadShare(KoordError):
    """A pod's annotation that is invalid; the pod has the share of its class."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"annotation {ANNOTATION}: {reason}")


class _Range(msgspec.Struct, rename={"cache_id": "cacheID"}):
    range: tuple[int, ...] = ()
    cache_id: int = 0


class _Percent(msgspec.Struct, rename={"cache_id": "cacheID"}):
    percent: int = 0
    cache_id: int = 0


class _Llc(msgspec.Struct, rename="camel"):
    schemata: _Range = msgspec.field(default_factory=_Range)
    schemata_per_cache: tuple[_Range, ...] = ()


class _Mb(msgspec.Struct, rename="camel"):
    schemata: _Percent = msgspec.field(default_factory=_Percent)
    schemata_per_cache: tuple[_Percent, ...] = ()


class _PodAnnotation(msgspec.Struct):
    llc: _Llc = msgspec.field(default_factory=_Llc)
    mb: _Mb = msgspec.field(default_factory=_Mb)


def of_pod(text: str, root: str, caches: Iterable[int], vendor: str) -> Shares:
    """Returns the shares of a pod's annotation; omitted values, and ranges without a way, are the root's.

    Source: spec/node-agent.md 4.9.

    Raises:
        BadShare: it is invalid, or names an absent cache.
    """
    try:
        annotation: _PodAnnotation = read_json(text, _PodAnnotation)
    except msgspec.MsgspecError as error:
        raise BadShare(str(error)) from error
    there = frozenset(caches)
    named = {each.cache_id for each in annotation.llc.schemata_per_cache}
    named |= {each.cache_id for each in annotation.mb.schemata_per_cache}
    if named - there:
        raise BadShare(f"names cache {min(named - there)}; this node has {', '.join(map(str, sorted(there)))}")

    def mask(of: _Range) -> int | None:
        return cache_mask(root, of.range[0], of.range[1]) if len(of.range) == 2 else None

    return Shares(
        mask(annotation.llc.schemata),
        bandwidth(annotation.mb.schemata.percent, vendor),
        {each.cache_id: found for each in annotation.llc.schemata_per_cache if (found := mask(each)) is not None},
        {
            each.cache_id: found
            for each in annotation.mb.schemata_per_cache
            if (found := bandwidth(each.percent, vendor)) is not None
        },
    )
