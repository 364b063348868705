"""Limits of evictions over time: of the whole descheduler, and of each workload and namespace.

The buckets are computed from the evictions that the log records, under the arguments in force: a restart forgets none,
and a changed limit counts at once. Source: spec/descheduler.md 3.9, 3.12.
"""

from typing import NamedTuple

from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.gang_minimum import breaks_gang
from services.descheduler.migration.migration_state import MigrationState
from services.descheduler.migration.object_limiter import (
    NAMESPACE,
    WORKLOAD,
    Bucket,
    Limit,
    after_eviction,
    exceeded_until_ns,
    is_exceeded,
)
from services.descheduler.migration.workload_limits import workload_limit
from shared.kube.instants import SECOND, instant_text
from shared.kube.pod import Pod


class _Exceeded(NamedTuple):
    """A limit of an object that is reached, and the instant from which on it is not, nanoseconds since the epoch."""

    text: str
    until_ns: int


class RateLimits:
    """The buckets at one instant."""

    def __init__(self, state: MigrationState, facts: ClusterFacts, args: MigrationArgs, now_ns: int) -> None:
        """Counts the evictions so far."""
        self._facts, self._args, self._now_ns = facts, args, now_ns
        self._limit = Limit(1, args.evict_interval_ns, args.evict_burst)
        self._bucket: Bucket | None = None
        for request in state.requests.values():
            self._bucket = after_eviction(self._bucket, self._limit, request.at_ns)
        self._leaving = {request.pod_uid for request in state.evicted()}
        self._units: set[str] = set()  # of which pods leave now
        self._instants: dict[tuple[str, str], list[int]] = {}
        for request in state.evicted():
            for kind, key in ((WORKLOAD, request.controller), (NAMESPACE, request.namespace)):
                if key and kind in args.object_limiters:
                    self._instants.setdefault((kind, key), []).append(request.at_ns)

    def breaks_gang(self, pod: Pod) -> str:
        """Returns why an eviction now would break the gang of a pod; those requested so far count."""
        return breaks_gang(self._facts, pod, self._leaving)

    def take_eviction(self, pod: Pod, unit: str = "") -> bool:
        """Takes the right to request the eviction of a pod now; returns False where it must wait.

        Args:
            unit: that it leaves as a part of: they wait or leave all together; empty for none.
        """
        if unit not in self._units and is_exceeded(self._bucket, self._limit, self._now_ns):
            return False
        if unit:
            self._units.add(unit)
        self._bucket = after_eviction(self._bucket, self._limit, self._now_ns)
        self._leaving.add(pod.metadata.uid)
        return True

    def object_exceeded(self, pod: Pod) -> str:
        """Returns which object of the pod has had too many evictions lately; empty for none."""
        found = self._exceeded(pod)
        return "" if found is None else found.text

    def object_wait(self, pod: Pod) -> str:
        """Returns the same with the instant until which the pod waits, where no other pod of the object is evicted first."""
        found = self._exceeded(pod)
        return "" if found is None else f"{found.text}, until {instant_text(-(-found.until_ns // SECOND) * SECOND)}"

    def _exceeded(self, pod: Pod) -> _Exceeded | None:
        if not self._instants:
            return None
        owner = pod.metadata.controller
        keys = {WORKLOAD: "" if owner is None else owner.uid, NAMESPACE: pod.metadata.namespace}
        for kind in self._args.object_limiters:
            instants = self._instants.get((kind, keys[kind]), ())
            if not instants:
                continue
            limit = self._object_limit(kind, pod)
            bucket: Bucket | None = None
            for at_ns in instants:
                bucket = after_eviction(bucket, limit, at_ns)
            if bucket is not None and is_exceeded(bucket, limit, self._now_ns):
                plural = "" if limit.tokens == 1 else "s"
                text = f"at most {limit.tokens} eviction{plural} of its {kind} in {limit.duration_ns // SECOND} s"
                return _Exceeded(text, exceeded_until_ns(bucket, limit))
        return None

    def _object_limit(self, kind: str, pod: Pod) -> Limit:
        args = self._args
        found = args.object_limiters[kind]
        if kind == WORKLOAD:
            value = args.max_per_workload if found.max_migrating is None else found.max_migrating
            tokens = workload_limit(self._facts.workload(pod).replicas, value)
        else:
            tokens = found.max_migrating if isinstance(found.max_migrating, int) else 0
        return Limit(tokens, found.duration_ns, found.burst)
