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
    def recorded(cls, event: RuntimeRecomputed) -> "RuntimeDelta":
        """As an event has it."""
        return cls(event.runtimes, event.scaled_mins, event.dropped)

    @classmethod
    def of_turns(cls, turns: Iterable[LevelBatch]) -> "RuntimeDelta":
        """Of levels that were shared together."""
        runtimes: ByResource = {}
        scaled_mins: ByResource = {}
        differences: ByResource = {}
        for turn in turns:
            for resource, names, now, before in turn.runtimes_moved():
                runtimes.setdefault(resource, {}).update(zip(names, now, strict=True))
                moved = (size - old for size, old in zip(now, before, strict=True))
                differences.setdefault(resource, {}).update(zip(names, moved, strict=True))
            for resource, names, now in turn.floors_moved():
                scaled_mins.setdefault(resource, {}).update(zip(names, now, strict=True))
        return cls(_sorted(runtimes), _sorted(scaled_mins), {}, differences)

    @classmethod
    def of_grants(
        cls, grants: Mapping[str, tuple[Mapping[str, int], Amounts]], accounts: Mapping[str, QuotaInfo]
    ) -> "RuntimeDelta":
        """Of quotas with their whole scaled_mins and runtimes."""
        found = cls({}, {}, {})
        for name, (floor, runtime) in sorted(grants.items()):
            account = accounts[name]
            for shares, after, before in (
                (found.runtimes, runtime, account.runtime),
                (found.scaled_mins, floor, account.scaled_min),
            ):
                for resource, size in after.items():
                    if before.get(resource) != size:
                        shares.setdefault(resource, {})[name] = size
            for resource in sorted(account.runtime.keys() - runtime.keys()):
                found.dropped.setdefault(resource, []).append(name)
        return found

    def of_accounts(self) -> Iterator[tuple[str, Amounts, Amounts]]:
        """Quota, its runtimes and its scaled_mins that are others."""
        found: dict[str, tuple[Amounts, Amounts]] = {}
        for index, shares in enumerate((self.runtimes, self.scaled_mins)):
            for resource, sizes in shares.items():
                for name, size in sizes.items():
                    found.setdefault(name, ({}, {}))[index][resource] = size
        for name, (runtime, floor) in found.items():
            yield name, runtime, floor


def _sorted(shares: ByResource) -> ByResource:
    return {resource: dict(sorted(sizes.items())) for resource, sizes in sorted(shares.items())}
