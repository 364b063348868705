"""What a service may do on the bus and in the log: read without what the service is made of.

Rights are generated from this alone (`cli/credentials/permissions.py`).
"""

from typing import NamedTuple, Self

from shared.errors import KoordError
from shared.runtime import sharding


class Manifest(NamedTuple):
    """A service, as others see it.

    Attributes:
        writes: the context to which it appends.
        follows: the contexts that it reads; the own one included.
        serves: bus subjects of the questions that it answers.
        subscribes: bus subjects it subscribes to beside those of the logs it follows; with wildcards.
        publishes: bus subjects it publishes on beside those of the log it writes; with wildcards.
        requests: subjects of the questions it asks.
        streams: JetStream streams it makes and fills.

    `writes` and the contexts of `follows` may be families (`metrics-*`, see shared/runtime/sharding.py); `member` puts their members in their place.
    """

    name: str
    writes: str
    follows: tuple[str, ...]
    serves: tuple[str, ...] = ()
    subscribes: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    def member(self, shard: int, shards: int) -> Self:
        """This service with families replaced by their members; a sharded one as the shard that it is.

        Raises:
            NoSuchShard: there are not so many.
            KoordError: it does not follow what it writes, though a service folds what it said.
        """
        if self.writes not in self.follows:
            raise KoordError(f"service {self.name} writes {self.writes} and does not follow it")
        name, writes = self.name, self.writes
        if sharding.is_family(writes):
            if not 0 <= shard < shards:
                raise sharding.NoSuchShard(name, shard, shards)
            name, writes = f"{name}-{shard}", sharding.member(writes, shard)
        others = [context for context in self.follows if context != self.writes]
        follows = (*sharding.members(others, shards), writes)
        streams = tuple(sharding.stream_members(self.streams, shards))
        return self._replace(name=name, writes=writes, follows=follows, streams=streams)
