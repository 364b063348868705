"""What was seen and is not in the log yet: the newest of each place, so that what comes while an append runs is one change."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice

from services.gateway.effects.intents import Place
from services.gateway.effects.write_tracker import Echoes
from services.gateway.kube_api.resources import NODES, PODS
from services.gateway.state import GatewayState
from services.gateway.watch.field_filter import Seen
from services.gateway.watch.observed_changes import absent, differences
from services.gateway.watch.self_write_filter import Retold
from shared.events import Draft
from shared.events.cluster import WatchResumed

APPEND_AT_MOST = 2_000
"""Objects compared at a time: a first list of a large cluster must not hold the loop, or a transaction, for long."""

ESSENTIAL = frozenset({PODS.name, NODES.name})
"""Without a list of these nothing is decided; the others may be not installed."""


class Intake:
    """The watches' sink.

    Attributes:
        awaited: resources that have not been listed yet; while there are any, nothing but observations is appended.
    """

    def __init__(
        self,
        awaited: Iterable[str],
        state: Callable[[], GatewayState],
        echoes: Echoes,
        wake: Callable[[], None],
        counted: Callable[[str], None],
    ) -> None:
        """Remember whom to tell.

        Args:
            awaited: the resources that will be listed.
            state: the State as it is.
            echoes: hears of every sighting.
            wake: called when there is something to append or to write again.
            counted: hears of each complete list, for metrics.
        """
        self.awaited = set(awaited)
        self._state = state
        self._echoes = echoes
        self._wake = wake
        self._counted = counted
        self._retold = Retold()
        self._news: dict[Place, Seen | None] = {}
        self._resumed: list[Draft] = []

    def seen(self, resource: str, objects: Iterable[Seen]) -> None:
        """Objects are there, or have changed."""
        state, news, saw = self._state(), self._news, self._echoes.saw
        now_s = asyncio.get_running_loop().time()
        for seen in objects:
            place = Place(resource, seen.key)
            news.pop(place, None)  # so that the order is that of the last sightings
            news[place] = seen
            saw(state, place, seen, now_s)
        self._wake()

    def gone(self, resource: str, key: str) -> None:
        """An object was deleted."""
        place = Place(resource, key)
        self._news.pop(place, None)
        self._news[place] = None
        self._echoes.gone(place)
        self._wake()

    def listed(self, resource: str, keys: set[str]) -> None:
        """A list is complete: what else is known of the resource is gone."""
        for place in absent(self._state(), resource, keys):
            self.gone(resource, place.key)
        for place in [place for place in self._news if place.resource == resource and place.key not in keys]:
            self.gone(resource, place.key)
        self.awaited.discard(resource)
        self._counted(resource)
        self._wake()

    def resumed(self, resource: str, reason: str) -> None:
        """A watch could not go on."""
        self._resumed.append(Draft(WatchResumed(resource=resource, reason=reason)))
        self._wake()

    def unavailable(self, resource: str) -> None:
        """A resource cannot be listed: the others need not wait for it."""
        if resource not in ESSENTIAL:
            self.awaited.discard(resource)
            self._wake()

    @property
    def empty(self) -> bool:
        """Whether everything that was seen has been taken."""
        return not self._news and not self._resumed

    def take(self) -> list[Draft]:
        """The next observations to append."""
        if len(self._news) <= APPEND_AT_MOST:
            news, self._news = self._news, {}
        else:
            news = dict(islice(self._news.items(), APPEND_AT_MOST))
            for place in news:
                del self._news[place]
        resumed, self._resumed = self._resumed, []
        state = self._state()
        return differences(state, self._retold.news(state, news)) + resumed
