"""The State of a service at the positions that its recorded decisions had seen."""

from collections.abc import Mapping

from shared.fold import State
from shared.log.codec import Codec
from shared.log.projection import Projection
from shared.log.reader import LogReader
from shared.log.service_store import ServiceStore
from shared.runtime.service import Service


class StatesOfHistory:
    """Goes along the logs from decision to decision. Where one had seen less than the one before it, as the first of a
    new leader may have, it begins again at a snapshot.
    """

    def __init__(self, log: LogReader, service: Service) -> None:
        self._log = log
        self._service = service
        self._store = ServiceStore(log.database, service.name)
        self._projection: Projection | None = None

    async def at(self, seen: Mapping[str, int]) -> State:
        """Returns the State at these positions; the same object as long as it goes forward.

        Raises:
            MissingEvents: an event that it needs is not kept any more.
        """
        projection = self._projection
        if projection is None or any(
            projection.positions[name].seq > seen.get(name, 0) for name in projection.positions
        ):
            projection = self._projection = await self._begin(seen)
        for name, seq in seen.items():
            await projection.read_to(name, seq)
        return projection.state

    async def _begin(self, seen: Mapping[str, int]) -> Projection:
        state = self._service.new_state()
        snapshot = await self._store.newest_snapshot(state.SCHEMA, self._log, upto=seen)
        shards = sum(name.startswith("metrics-") for name in seen)
        follows = self._service.member(0, max(shards, 1)).follows
        codecs = {name: Codec(follows[name]) for name in seen}
        projection = Projection(self._log, codecs, state, await self._store.skips())
        if snapshot is not None:
            projection.start_from(snapshot)
        return projection
