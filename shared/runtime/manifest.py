"""Manifest of a service: its rights on the bus and in the log, importable without the service.

Rights are generated from this alone: on the bus and in the log by `cli/credentials/permissions.py`, in the cluster by
`tools/generate.py`.
"""

from typing import NamedTuple, Self

from shared.errors import KoordError
from shared.runtime import sharding
from shared.runtime.intent_rights import IntentRight


class Manifest(NamedTuple):
    """Contexts and subjects of a service.

    Attributes:
        writes: the context to which it appends.
        follows: the contexts that it reads; the own one included.
        serves: bus subjects of the requests that every replica responds to.
        serves_leading: bus subjects of the requests that only the replica which leads responds to.
        subscribes: bus subjects it subscribes to besides those of the logs it follows; with wildcards.
        publishes: bus subjects it publishes on besides those of the log it writes; with wildcards.
        requests: subjects of the requests it sends.
        streams: JetStream streams it creates and fills.
        intents: the intents that its context may carry; the gateway refuses any other.

    `writes` and the contexts of `follows` may be sharded names (`metrics-*`, see shared/runtime/sharding.py); `member`
    replaces them by their members.
    """

    name: str
    writes: str
    follows: tuple[str, ...]
    serves: tuple[str, ...] = ()
    serves_leading: tuple[str, ...] = ()
    subscribes: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    intents: tuple[IntentRight, ...] = ()

    def member(self, shard: int, shards: int) -> Self:
        """Returns this service with sharded names replaced by their members; a sharded service becomes the given shard.

        Raises:
            NoSuchShard: there are not so many.
            KoordError: it does not follow the context that it writes, although a service folds its own events.
        """
        if self.writes not in self.follows:
            raise KoordError(f"service {self.name} writes {self.writes} and does not follow it")
        name, writes = self.name, self.writes
        if sharding.is_sharded(writes):
            if not 0 <= shard < shards:
                raise sharding.NoSuchShard(name, shard, shards)
            name, writes = f"{name}-{shard}", sharding.member(writes, shard)
        others = [context for context in self.follows if context != self.writes]
        follows = (*sharding.members(others, shards), writes)
        streams = tuple(sharding.stream_members(self.streams, shards))
        return self._replace(name=name, writes=writes, follows=follows, streams=streams)
