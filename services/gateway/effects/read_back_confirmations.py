"""Outcomes of one-shot effects that are certain before they are recorded.

A request that got no answer may have been done. So a binding or an eviction counts as failed, or as refused after such
a request, only once a read of its pod shows that it was not done; while the API server cannot be read the intent stays
open. What is observed meanwhile decides, too. An intent that an earlier gateway has left due may have had such a
request: that gateway may have ended before the answer.
"""

import asyncio
import logging
import random
from collections.abc import Iterable

from services.gateway.effects import pod_writes
from services.gateway.effects.intent_types import OneShot
from services.gateway.effects.outcomes_without_api_request import outcome_observed
from services.gateway.kube_api.api_errors import ApiError
from services.gateway.kube_api.client import KubeApi
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from shared.events import Cause, Event
from shared.events.cluster import BindFailed, EvictionFailed, PodBound, PodEvicted

log = logging.getLogger(__name__)


class Confirmations:
    """One-shot effects with a request that got no answer."""

    def __init__(self, api: KubeApi, settings: GatewaySettings) -> None:
        self._api = api
        self._settings = settings
        self._unanswered_s: dict[Cause, float] = {}

    def inherited(self, causes: Iterable[Cause]) -> None:
        """Records intents that were due when this gateway began: their last request may have ended then."""
        self._unanswered_s = dict.fromkeys(causes, asyncio.get_running_loop().time())

    def unanswered(self, cause: Cause) -> None:
        """Records that a request of an intent has ended without an answer."""
        self._unanswered_s[cause] = asyncio.get_running_loop().time()

    async def outcome(self, cause: Cause, intent: OneShot, state: GatewayState, found: Event) -> Event:
        """Returns the outcome of an intent, where `found` is that of its last try. Only reads, for as long as it takes.

        The server may still execute a request after the client has ended it, for a time-out longer at the most; a
        pod without a node counts when it is read after that.
        """
        unanswered_s = self._unanswered_s.pop(cause, None)
        failed = isinstance(found, BindFailed | EvictionFailed)
        if isinstance(found, PodBound | PodEvicted) or (unanswered_s is None and not failed):
            return found
        over_s = unanswered_s + self._settings.timeout_s if unanswered_s is not None else 0.0
        pause_s, logged = self._settings.backoff_s, False
        while True:
            if (shown := outcome_observed(state, intent)) is not None:
                return shown
            reads_s = asyncio.get_running_loop().time()
            try:
                shown = await pod_writes.outcome_shown(self._api, intent)
            except ApiError as error:
                if not logged:
                    log.warning(
                        "the outcome of an intent is not known until its pod is read",
                        extra={"intent": str(cause), "pod": intent.pod, "error": str(error)},
                    )
                logged = True
            else:
                if shown is not None or reads_s >= over_s:
                    return shown or found
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311
            pause_s = min(pause_s * 2, self._settings.backoff_max_s)
