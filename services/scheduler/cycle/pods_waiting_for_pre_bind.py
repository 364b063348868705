"""The pods for which a node is held while something is prepared for them: volumes, of themselves or of their unit.

A unit is bound once all of its pods are ready, and releases all its nodes when one of them can no longer be bound, when
it has waited too long, or when it lacks a pod by now.

Source: upstream Kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go, BindPodVolumes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.scheduler.cache.cluster_cache import ClusterCache
from services.scheduler.cycle.cycle_plan import ReleasedPod
from services.scheduler.framework.plugin_base import DEFAULT_PREPARATION_NS, Plugin
from services.scheduler.framework.pre_bind_preparation import PENDING, READY, Readiness
from services.scheduler.framework.profile import Profile
from services.scheduler.queue.retries import backoff_ns
from services.scheduler.queue.units import Groupings, class_of
from services.scheduler.state.pod_attempts_and_refusals import FOR_VOLUMES
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.kube.instants import SECOND


class Settled(NamedTuple):
    """The pods whose wait ends.

    Attributes:
        ready: the pods of each unit that is bound now.
        released: those that lose their node.
    """

    ready: tuple[tuple[PodRecord, ...], ...] = ()
    released: tuple[ReleasedPod, ...] = ()


NOTHING = Settled()


class Preparations:
    """The pods that wait with a node, by unit."""

    def __init__(self, cache: ClusterCache, profiles: Mapping[str, Profile], groupings: Groupings) -> None:
        self._cache = cache
        self._profiles = profiles
        self._groupings = groupings
        self._units: dict[str, dict[str, PodRecord]] = {}  # unit, or uid of a pod without one -> uid -> pod
        self._unit_of: dict[str, str] = {}
        self._changes = 0
        self._settled_at: tuple[int, ...] = ()
        self._next_ns: int | None = None
        self._looked_ns = 0
        self._first_ns: dict[str, int] = {}  # uid -> the earliest time at which it was looked at

    def note(self, uid: str, pod_record: PodRecord | None) -> None:
        """Notes a change of a pod."""
        hold = pod_record.hold if pod_record is not None and pod_record.decisions is not None else None
        is_held = hold is not None and hold.waits_for == FOR_VOLUMES and pod_record is not None and not pod_record.node
        unit = self._unit_of.pop(uid, None)
        if unit is not None:
            self._changes += 1
            del self._units[unit][uid]
            if not self._units[unit]:
                del self._units[unit]
        if is_held and hold is not None and pod_record is not None and not pod_record.ended:
            self._changes += 1
            unit = self._unit_of[uid] = hold.unit or uid
            self._units.setdefault(unit, {})[uid] = pod_record
        else:
            self._first_ns.pop(uid, None)

    def next_at_ns(self) -> int | None:
        """Returns the next time at which a wait ends without an event."""
        return self._next_ns if self._units and self._settled_at == self._inputs() else None

    def settled(self, now_ns: int) -> Settled:
        """Returns the pods whose wait ends by the observed objects, or by `now_ns`."""
        if not self._units:
            return NOTHING
        looked_ns, self._looked_ns = self._looked_ns, now_ns
        is_unchanged = self._settled_at == (at := self._inputs()) and looked_ns <= now_ns
        if is_unchanged and self._next_ns is not None and now_ns < self._next_ns:
            return NOTHING
        self._settled_at, self._next_ns = at, None
        ready: list[tuple[PodRecord, ...]] = []
        released: list[ReleasedPod] = []
        for key, members in sorted(self._units.items()):
            pods = tuple(pod for _, pod in sorted(members.items()))
            states = [self._readiness(pod) for pod in pods]
            for pod in pods:
                self._first_ns[pod.uid] = min(self._first_ns.get(pod.uid, now_ns), now_ns)
            if reason := self._problem(key, pods, states, now_ns):
                withdrawn = [state.withdrawn for state in states]
                released += [ReleasedPod(pod, reason, each) for pod, each in zip(pods, withdrawn, strict=True)]
            elif all(state.is_ready for state in states):
                # The ledger may have refused the charge a moment ago.
                at_ns = max(self._by_this_clock(pod, pod.tried_ns, now_ns) + backoff_ns(pod.attempts) for pod in pods)
                if at_ns <= now_ns:
                    ready.append(pods)
                else:
                    self._wait_until(at_ns)
            else:
                self._wait_until(
                    min(self._by_this_clock(pod, pod.placed_ns, now_ns) + self._longest_ns(pod) for pod in pods)
                )
        return Settled(tuple(ready), tuple(released))

    def _by_this_clock(self, pod: PodRecord, at_ns: int, now_ns: int) -> int:
        """Returns a recorded time of a pod; that of the first look at the pod where the recorded one is still to come: the
        clock was ahead, and was set back. No wait lasts longer for it.
        """
        return at_ns if at_ns <= now_ns else self._first_ns[pod.uid]

    def _wait_until(self, at_ns: int) -> None:
        self._next_ns = at_ns if self._next_ns is None else min(self._next_ns, at_ns)

    def _inputs(self) -> tuple[int, ...]:
        return self._changes, self._cache.cluster_objects.storage.version, self._cache.table.version

    def _problem(self, key: str, pods: tuple[PodRecord, ...], states: list[Readiness], now_ns: int) -> str:
        """Returns why a unit can no longer be bound; empty while it may."""
        for pod, state in zip(pods, states, strict=True):
            if pod.placed_node not in self._cache.view.nodes:
                return f"its node {pod.placed_node} is gone"
            if pod.deleting:
                return f"pod {pod.name} is being deleted"
            if state.problem:
                return state.problem if len(pods) == 1 else f"{pod.name}: {state.problem}"
            longest_ns = self._longest_ns(pod)
            if not state.is_ready and now_ns - self._by_this_clock(pod, pod.placed_ns, now_ns) >= longest_ns:
                return f"its volumes were not bound within {longest_ns // SECOND} s"
        hold = pods[0].hold
        if hold is not None and hold.unit:
            for grouping in self._groupings.get(class_of(pods[0]).scheduler, {}).values():
                if not grouping.is_still_complete(key):
                    return f"{key} lacks pods by now"
        return ""

    def _readiness(self, pod: PodRecord) -> Readiness:
        pod_class, hold, table = class_of(pod), pod.hold, self._cache.table
        if hold is None or pod.placed_node not in table.rows:
            return PENDING
        states = (
            plugin.readiness(self._cache.cluster_objects, table, pod_class, pod.placed_node, hold.saw)
            for plugin in self._pre_bind(pod)
        )
        return next((each for each in states if not each.is_ready), READY)

    def _longest_ns(self, pod: PodRecord) -> int:
        return max((each.longest_preparation_ns() for each in self._pre_bind(pod)), default=DEFAULT_PREPARATION_NS)

    def _pre_bind(self, pod: PodRecord) -> Sequence[Plugin]:
        profile = self._profiles.get(class_of(pod).scheduler)
        return () if profile is None else profile.pre_bind
