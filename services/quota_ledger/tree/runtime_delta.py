"""What sharing anew has changed: by resource, each quota whose share is another one, and nothing else."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from services.quota_ledger.runtime.level_batch import LevelBatch
from services.quota_ledger.tree.quota_info import QuotaInfo
from shared.domain.amounts import Amounts
from shared.events.quota import RuntimeRecomputed

ByResource = dict[str, dict[str, int]]
"""Resource -> quota -> amount."""


class RuntimeDelta(msgspec.Struct, eq=False):
    """RuntimeUpdate that are to be others.

    Attributes:
        runtimes, scaled_mins: what they are to be, names sorted.
        dropped: resource -> quotas that no longer have a share of it.
        differences: by how much the runtimes move; known to whom has computed them, and of no account for equality.
    """

    runtimes: ByResource
    scaled_mins: ByResource
    dropped: dict[str, list[str]] = {}
    differences: ByResource = {}

    def __bool__(self) -> bool:
        return bool(self.runtimes or self.scaled_mins or self.dropped)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuntimeDelta) and (self.runtimes, self.scaled_mins, self.dropped) == (
            other.runtimes,
            other.scaled_mins,
            other.dropped,
        )

    __hash__ = None  # type: ignore[assignment]  # what moved is compared, never kept in a set

    def event(self, tree: str) -> RuntimeRecomputed:
        """As it is recorded."""
        return RuntimeRecomputed(tree=tree, runtimes=self.runtimes, scaled_mins=self.scaled_mins, dropped=self.dropped)

    @classmethod
    def from_event(cls, event: RuntimeRecomputed) -> "RuntimeDelta":
        """As an event has it."""
        return cls(event.runtimes, event.scaled_mins, event.dropped)

    @classmethod
    def from_batches(cls, batches: Iterable[LevelBatch]) -> "RuntimeDelta":
        """Of levels that were shared together."""
        runtimes: ByResource = {}
        scaled_mins: ByResource = {}
        differences: ByResource = {}
        for batch in batches:
            for resource, names, now, before in batch.runtimes_changed():
                runtimes.setdefault(resource, {}).update(zip(names, now, strict=True))
                delta = (size - old for size, old in zip(now, before, strict=True))
                differences.setdefault(resource, {}).update(zip(names, delta, strict=True))
            for resource, names, now in batch.scaled_mins_changed():
                scaled_mins.setdefault(resource, {}).update(zip(names, now, strict=True))
        return cls(_sorted(runtimes), _sorted(scaled_mins), {}, differences)

    @classmethod
    def from_runtimes(
        cls, shares: Mapping[str, tuple[Mapping[str, int], Amounts]], quotas: Mapping[str, QuotaInfo]
    ) -> "RuntimeDelta":
        """Of quotas with their whole scaled_mins and runtimes."""
        found = cls({}, {}, {})
        for name, (scaled_min, runtime) in sorted(shares.items()):
            info = quotas[name]
            for changed, after, before in (
                (found.runtimes, runtime, info.runtime),
                (found.scaled_mins, scaled_min, info.scaled_min),
            ):
                for resource, size in after.items():
                    if before.get(resource) != size:
                        changed.setdefault(resource, {})[name] = size
            for resource in sorted(info.runtime.keys() - runtime.keys()):
                found.dropped.setdefault(resource, []).append(name)
        return found

    def by_quota(self) -> Iterator[tuple[str, Amounts, Amounts]]:
        """Quota, its runtimes and its scaled_mins that are others."""
        found: dict[str, tuple[Amounts, Amounts]] = {}
        for index, shares in enumerate((self.runtimes, self.scaled_mins)):
            for resource, sizes in shares.items():
                for name, size in sizes.items():
                    found.setdefault(name, ({}, {}))[index][resource] = size
        for name, (runtime, scaled_min) in found.items():
            yield name, runtime, scaled_min


def _sorted(shares: ByResource) -> ByResource:
    return {resource: dict(sorted(sizes.items())) for resource, sizes in sorted(shares.items())}
