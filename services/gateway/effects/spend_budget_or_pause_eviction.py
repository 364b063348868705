"""Evictions that are being carried out or paused, until their events are appended: see `eviction_budget`."""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from services.gateway.effects.eviction_budget import BREAKER, Evicted, EvictionBudget, Limits, breaks
from services.gateway.known_objects import ObservedPod
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from shared.events import Cause, Draft, Event
from shared.events.cluster import EvictionPaused, EvictionsHeld, PodBound, PodEvicted
from shared.events.intents import EvictionRequested
from shared.kube.instants import SECOND

log = logging.getLogger(__name__)

PAUSED_INTERVAL_NS = SECOND
"""Interval at which paused evictions are examined, unless a hold or a release comes."""


def limits_of(settings: GatewaySettings) -> Limits:
    """Returns the budgets of the settings."""
    return Limits(
        settings.eviction_window_s,
        settings.evictions_per_node,
        settings.evictions_per_workload,
        settings.evictions_per_namespace,
        settings.evictions_per_cluster,
        settings.eviction_breaker,
    )


class EvictionPauses:
    """The evictions that the log does not have yet."""

    def __init__(self, limits: Limits, append: Callable[[Draft], None]) -> None:
        self._limits = limits
        self._append = append
        self._evicting: dict[Cause, Evicted] = {}
        self._perhaps: dict[Cause, Evicted] = {}  # due at the start: an earlier gateway may have evicted them
        self._bound: dict[str, PodBound] = {}  # pod uid -> a binding that no observation shows yet
        self._pausing: dict[Cause, None] = {}
        self._held_after = -1  # `switched_seq` after which the breaker was drafted
        self._budget: EvictionBudget | None = None
        self._now_ns = 0
        self._examined = (
            -PAUSED_INTERVAL_NS,
            -1,
        )  # instant and `switched_seq` when paused evictions were last examined
        self._examines_paused = True

    def started(self, state: GatewayState) -> None:
        """Records the pods of due evictions as the log has them, before anything is listed.

        A pod that is gone already, even if it ended by itself, may have been evicted as well: it spends all budgets but
        those of a node and a workload, which the log no longer has.
        """
        for cause, intent in state.intents.one_shots.items():
            if isinstance(intent, EvictionRequested):
                self._perhaps[cause] = _evicted(cause, intent, state.pod(intent.pod, intent.pod_uid))

    def _spend_what_a_crash_left(self, state: GatewayState) -> None:
        """Spends the budget for due evictions whose pods are terminating or gone since.

        A crash may have come between the response of the API server and the append of the outcome.
        """
        for cause, one in self._perhaps.items():
            intent = state.intents.one_shots.get(cause)
            pod = state.pod(intent.pod, intent.pod_uid) if intent is not None else None
            if intent is not None and (pod is None or pod.terminating):
                self._evicting[cause] = one
        self._perhaps.clear()

    def begin_round(self, state: GatewayState, now_ns: int) -> None:
        """Begins a choice of due intents at an instant. Thousands of paused evictions are not examined each time."""
        self._budget, self._now_ns = None, now_ns
        self._spend_what_a_crash_left(state)
        self._forget_observed_bindings(state)
        at_ns, switched_seq = self._examined
        self._examines_paused = (
            abs(now_ns - at_ns) >= PAUSED_INTERVAL_NS or switched_seq != state.evictions.switched_seq
        )
        if self._examines_paused:
            self._examined = now_ns, state.evictions.switched_seq

    def _forget_observed_bindings(self, state: GatewayState) -> None:
        """Forgets bindings whose pods have a node in the State now, or are gone."""
        while self._bound:
            first = next(iter(self._bound.values()))
            pod = state.pod(first.pod, first.pod_uid)
            if pod is not None and not pod.node:
                break
            del self._bound[first.pod_uid]

    def is_paused(self, state: GatewayState, cause: Cause) -> bool:
        """Reports whether an eviction is paused and not examined in this round."""
        return not self._examines_paused and (cause in self._pausing or cause in state.evictions.paused)

    def must_wait(self, state: GatewayState, cause: Cause, intent: EvictionRequested) -> bool:
        """Spends the budget for an eviction; without one it is paused, which is recorded once."""
        pod = state.pod(intent.pod, intent.pod_uid)
        assert pod is not None, "the State has its outcome"
        if self._budget is None:
            in_flight = [one for one in self._evicting.values() if one.pod_uid not in state.evictions.evicted]
            self._budget = EvictionBudget(state.evictions, self._limits, in_flight, self._now_ns)
        one = _evicted(cause, intent, pod)
        if not one.node and (bound := self._bound.get(intent.pod_uid)) is not None:
            one = replace(one, node=bound.node)
        if not (reason := self._budget.admit(one)):
            self._evicting[cause] = one
            return False
        if cause not in state.evictions.paused and cause not in self._pausing:
            log.warning("an eviction is paused", extra={"intent": str(cause), "pod": intent.pod, "reason": reason})
            self._pausing[cause] = None
            event = EvictionPaused(pod=intent.pod, pod_uid=intent.pod_uid, reason=reason)
            self._append(Draft(event, cause, intent.pod_uid))
        return True

    def break_if_many(self, state: GatewayState) -> None:
        """Holds all evictions when those of too many pods wait."""
        record = state.evictions

        def pod_of(cause: Cause) -> str:
            intent = state.intents.one_shots.get(cause)
            return intent.pod_uid if intent is not None else str(cause)

        if record.switched_seq == self._held_after or self._pausing.keys() <= record.paused.keys():
            return
        if not breaks(record, self._pausing, pod_of, self._limits):
            return
        self._held_after = record.switched_seq
        log.error("evictions are held: too many wait for budget", extra={"limit": self._limits.breaker})
        reason = f"{self._limits.breaker} evictions wait for budget"
        self._append(Draft(EvictionsHeld(by=BREAKER, reason=reason)))

    def outcome(self, cause: Cause, outcome: Event) -> Event:
        """Adds the node and the workload to the outcome of an eviction that spent budget.

        Also notes the node of a binding: an eviction spends its budget before a watch shows the pod there. Another
        gateway need not know it, since it lists all pods first.
        """
        if isinstance(outcome, PodBound):
            self._bound[outcome.pod_uid] = outcome
        one = self._evicting.get(cause)
        if one is None or not isinstance(outcome, PodEvicted):
            return outcome
        return replace(outcome, node=one.node, workload=one.workload, without_node=not one.node)

    def pause_appended(self, cause: Cause) -> None:
        """Forgets a pause that the State has now. The eviction itself may be in flight already."""
        self._pausing.pop(cause, None)

    def outcome_appended(self, cause: Cause) -> None:
        """Forgets an eviction that has ended."""
        self._evicting.pop(cause, None)


def _evicted(cause: Cause, intent: EvictionRequested, pod: ObservedPod | None) -> Evicted:
    """Returns an eviction that is being carried out, or that an earlier gateway may have carried out."""
    node, workload = ("", "") if pod is None else (pod.node, pod.workload)
    return Evicted(0, node, intent.pod.partition("/")[0], workload, intent.pod_uid, cause)
