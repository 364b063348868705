"""The difference between two states of a tree's runtimes: the content of RuntimeRecomputed."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from services.quota_ledger.runtime.level_batch import LevelBatch
from services.quota_ledger.tree.quota_info import QuotaInfo
from shared.domain.amounts import Amounts
from shared.events.quota import RuntimeRecomputed

ByResource = dict[str, dict[str, int]]
"""Resource -> quota -> amount."""


class RuntimeDelta(msgspec.Struct, eq=False):
    """The runtimes and scaled minima that change.

    Attributes:
        runtimes, scaled_mins: the new amounts, names sorted.
        dropped: resource -> quotas that no longer have a runtime in it.
        differences: increase of each runtime; only where it was computed here, and not compared.
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

    __hash__ = None  # type: ignore[assignment]  # compared, never kept in a set

    def event(self, tree: str) -> RuntimeRecomputed:
        """Returns the event that records it."""
        return RuntimeRecomputed(tree=tree, runtimes=self.runtimes, scaled_mins=self.scaled_mins, dropped=self.dropped)

    @classmethod
    def from_event(cls, event: RuntimeRecomputed) -> "RuntimeDelta":
        """Reads an event."""
        return cls(event.runtimes, event.scaled_mins, event.dropped)

    @classmethod
    def from_batches(cls, batches: Iterable[LevelBatch]) -> "RuntimeDelta":
        """Collects the changes of batches of levels."""
        runtimes: ByResource = {}
        scaled_mins: ByResource = {}
        differences: ByResource = {}
        for batch in batches:
            for resource, names, now, increases in batch.runtimes_changed():
                runtimes.setdefault(resource, {}).update(zip(names, now, strict=True))
                differences.setdefault(resource, {}).update(zip(names, increases, strict=True))
            for resource, names, now in batch.scaled_mins_changed():
                scaled_mins.setdefault(resource, {}).update(zip(names, now, strict=True))
        return cls(_sorted(runtimes), _sorted(scaled_mins), {}, differences)

    @classmethod
    def from_runtimes(
        cls, shares: Mapping[str, tuple[Mapping[str, int], Amounts]], quotas: Mapping[str, QuotaInfo]
    ) -> "RuntimeDelta":
        """Compares whole scaled minima and runtimes with the present ones."""
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
        """Yields each quota with its changed runtimes and scaled minima."""
        found: dict[str, tuple[Amounts, Amounts]] = {}
        for index, shares in enumerate((self.runtimes, self.scaled_mins)):
            for resource, sizes in shares.items():
                for name, size in sizes.items():
                    found.setdefault(name, ({}, {}))[index][resource] = size
        for name, (runtime, scaled_min) in found.items():
            yield name, runtime, scaled_min


def _sorted(shares: ByResource) -> ByResource:
    return {resource: dict(sorted(sizes.items())) for resource, sizes in sorted(shares.items())}
