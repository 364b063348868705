"""Buffer of observations that are not in the log yet: the newest of each object.

Observations that arrive while an append runs are merged into one change of the object.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from services.gateway.effects.drift_tracker import DriftTracker
from services.gateway.effects.intent_types import ObjectRef
from services.gateway.kube_api.resources import ESSENTIAL
from services.gateway.kube_api.unused_field_removal import ObservedObject
from services.gateway.state import GatewayState
from services.gateway.watch.incomplete_list_guard import ListResult, ShortLists
from services.gateway.watch.node_metric_self_write_filter import NodeMetricSelfWriteFilter
from services.gateway.watch.observed_changes import absent, differences
from services.gateway.watch.pending_observation_batches import PendingObservations
from services.gateway.watch.unread_resources import Outages
from shared.events import Draft
from shared.events.cluster import ShortListFound, WatchResumed

log = logging.getLogger(__name__)


class ObservationBuffer:
    """Sink of all watchers.

    Attributes:
        not_listed: resources that have not been listed yet; until there are none, only observations are appended.
        short_lists: lists that are not believed.
        outages: resources that are not read at the moment.
    """

    def __init__(
        self,
        resources: Iterable[str],
        state: Callable[[], GatewayState],
        drift_tracker: DriftTracker,
        wake: Callable[[], None],
        count_list: Callable[[str], None],
        short_lists: ShortLists,
    ) -> None:
        """Starts empty.

        Args:
            resources: names of the resources that will be listed.
            state: returns the current State.
            drift_tracker: receives every observation, to detect drift.
            wake: called when there is something to append or to write again.
            count_list: called with the resource of each complete list, for metrics.
            short_lists: decides which lists are believed.
        """
        self.not_listed = set(resources)
        self._state = state
        self._drift_tracker = drift_tracker
        self._wake = wake
        self._count_list = count_list
        self.short_lists = short_lists
        self.outages = Outages(lambda: asyncio.get_running_loop().time())
        self._self_writes = NodeMetricSelfWriteFilter()
        self._pending = PendingObservations()
        self._known_before: dict[str, int] = {}
        self._own_events: list[Draft] = []

    def list_begins(self, resource: str) -> None:
        """Notes how many objects the log has before a list adds to them; a repeated list counts like the first one."""
        self._known_before.setdefault(resource, len(self._state().known.get(resource, ())))

    def observed(self, resource: str, objects: Iterable[ObservedObject]) -> None:
        """Buffers objects that exist or have changed."""
        state, pending, track = self._state(), self._pending, self._drift_tracker.observed
        now_s = asyncio.get_running_loop().time()
        for seen in objects:
            ref = ObjectRef(resource, seen.key)
            pending.put(ref, seen)
            track(state, ref, seen, now_s)
        self._wake()

    def deleted(self, resource: str, key: str) -> None:
        """Buffers the deletion of an object."""
        ref = ObjectRef(resource, key)
        self._pending.put(ref, None)
        self._drift_tracker.deleted(ref)
        self._wake()

    def listed(self, resource: str, keys: set[str]) -> ListResult:
        """Ends a complete list: other objects of the resource, in the log or buffered, were deleted.

        A list that lacks too many deletes nothing.
        """
        missing = [ref.key for ref in absent(self._state(), resource, keys)]
        if not self._believes(resource, missing):
            return ListResult.SHORT if resource in self.short_lists.held else ListResult.DOUBTFUL
        for key in missing:
            self.deleted(resource, key)
        for ref in [ref for ref in self._pending if ref.resource == resource and ref.key not in keys]:
            self.deleted(resource, ref.key)
        self.not_listed.discard(resource)
        self._count_list(resource)
        self._wake()
        return ListResult.REMOVED if missing else ListResult.COMPLETE

    def _believes(self, resource: str, missing: list[str]) -> bool:
        before = self.short_lists.held.get(resource)
        known = len(self._state().known.get(resource, ()))
        added = max(known - self._known_before.get(resource, known), 0)
        if self.short_lists.believes(resource, known, missing, added):
            self._known_before.pop(resource, None)
            if before:
                log.warning("a list is believed again", extra={"resource": resource, "missing": len(missing)})
            return True
        held = self.short_lists.held.get(resource)
        if held is None:
            log.warning(
                "a list is repeated before it is believed", extra={"resource": resource, "missing": len(missing)}
            )
            return False
        found = held.describe()
        if before is None:
            event = ShortListFound(resource=resource, known=found.known, missing=found.missing, names=found.names)
            self._own_events.append(Draft(event))
            self._wake()
        log.error("a list is not believed and effects stop; `koord cluster confirm`", extra={"found": str(found)})
        return False

    def resumed(self, resource: str, reason: str) -> None:
        """Buffers the event that a watch was resumed by a new list."""
        self._own_events.append(Draft(WatchResumed(resource=resource, reason=reason)))
        self._wake()

    def unavailable(self, resource: str) -> None:
        """Stops waiting for the list of a resource that cannot be listed, unless it is essential."""
        if resource not in ESSENTIAL:
            self.not_listed.discard(resource)
            self._wake()

    def failing(self, resource: str, reason: str) -> None:
        """Records why a resource is not read; see `ObservationSink.failing`."""
        self.outages.failing(resource, reason)

    def accepted(self, resource: str) -> None:
        """Records that a watch was accepted; see `ObservationSink.accepted`."""
        self.outages.accepted(resource)

    @property
    def empty(self) -> bool:
        """Returns whether every observation has been taken."""
        return not self._pending and not self._own_events

    def take(self) -> list[Draft]:
        """Removes the next batch and returns the events to append for it."""
        batch = self._pending.take()
        own_events, self._own_events = self._own_events, []
        state = self._state()
        return differences(state, self._self_writes.without_self_writes(state, batch)) + own_events
