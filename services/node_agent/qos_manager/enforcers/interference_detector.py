"""Runs interference detection on the node: reads counters, reports pods that neighbours slow down, and suppresses.

Off unless the NodeSLO's `extensions.interference` enables it; then it reads counters every ROUND_INTERVAL_NS.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

import msgspec

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.interference_counters import InterferenceCounters
from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.collectors.usage_sample_types import UsageSnapshot
from services.node_agent.interference.detection import (
    Change,
    DetectionState,
    Ended,
    Round,
    Started,
    Stored,
    decide,
)
from services.node_agent.interference.policy import Policy, policy_of
from services.node_agent.interference.signals import Counters, activity_of, signals_of
from services.node_agent.interference.suspects import PodSample
from shared.agents.actions import (
    AnyAction,
    Interfered,
    InterferenceEnded,
    SignalDeviation,
    SuspectedNeighbour,
)
from shared.file_replacement import replace_file
from shared.kube.instants import SECOND
from shared.kube.pod import Pod
from shared.kube.slo_config import InterferenceStrategy, ResourceThreshold

log = logging.getLogger(__name__)

FILE = "interference.json"
ROUND_INTERVAL_NS = 2 * SECOND
LONGEST_ROUND_NS = 10 * SECOND
"""After a longer pause the next reading begins anew."""
KEEP_INTERVAL_NS = 300 * SECOND

SUPPRESS = "suppress"


class InterferenceDetector:
    """Detection on one node.

    Attributes:
        policy: in the last cycle.
    """

    def __init__(
        self,
        counters: InterferenceCounters,
        report_action: Callable[[AnyAction], None],
        state_dir: Path | None,
        clock_ns: Callable[[], int],
        node_type: str,
    ) -> None:
        self.policy = policy_of(InterferenceStrategy())
        self._counters, self._report_action, self._clock_ns = counters, report_action, clock_ns
        self._file = state_dir / FILE if state_dir is not None else None
        self._node_type = node_type
        # Rounds go by the monotonic clock, which does not jump; instants in events are of the wall clock.
        self._wall_ns = time.time_ns() - clock_ns()
        self._state = DetectionState(self._load(), clock_ns() + self._wall_ns)
        self._before: Mapping[str, Counters] = {}
        self._newest: tuple[PodSample, ...] = ()
        self._round_ns = self._kept_ns = clock_ns()
        self._can_suppress = self._unwritable = False

    def run_cycle(
        self,
        strategy: InterferenceStrategy,
        pods: Sequence[PodCgroups],
        best_effort: frozenset[str],
        snapshot: UsageSnapshot,
        node_type: str = "",
        *,
        suppresses: bool,
    ) -> None:
        """Runs a round when one is due, and reports what it decides.

        Args:
            best_effort: uids of best-effort pods.
            node_type: label of the node's type; empty: the CPU's model counts.
            suppresses: best effort is suppressed on this node, so that it can be suppressed more.
        """
        self._can_suppress = suppresses
        self.policy = policy_of(strategy)
        now_ns = self._clock_ns()
        if not self.policy.enable:
            self._stop()
            return
        if self._before and now_ns - self._round_ns < ROUND_INTERVAL_NS:
            return
        elapsed_ns, self._round_ns = now_ns - self._round_ns, now_ns
        before = self._before if elapsed_ns <= LONGEST_ROUND_NS else {}
        self._before = self._counters.read(pods, best_effort, snapshot, now_ns)
        if not before:
            return
        at_ns = now_ns + self._wall_ns
        self._newest = tuple(samples(pods, best_effort, before, self._before))
        found = Round(at_ns, elapsed_ns / SECOND, node_type or self._node_type, self._newest)
        self._state.fold(found, self.policy)
        self._carry_out(decide(self._state, self.policy, at_ns))
        if now_ns - self._kept_ns >= KEEP_INTERVAL_NS:
            self._keep()

    def threshold(self, threshold: ResourceThreshold) -> ResourceThreshold:
        """Returns the thresholds of suppression in force: lower ones while a pod is marked and the answer is `suppress`.

        `cpuSuppressThresholdPercent` and `cpuSuppressMinPercent` are multiplied by `suppressPercent / 100`.
        """
        if self.policy.answer != SUPPRESS or not self._state.stored.marks:
            return threshold
        percent, least = threshold.cpu_suppress_threshold_percent, threshold.cpu_suppress_min_percent
        return msgspec.structs.replace(
            threshold,
            cpu_suppress_threshold_percent=None if percent is None else percent * self.policy.suppress_percent // 100,
            cpu_suppress_min_percent=None if least is None else least * self.policy.suppress_percent // 100,
        )

    def gauges(self) -> Iterator[Gauge]:
        """Yields the newest signals of each pod, and whether it is marked."""
        for each in self._newest:
            namespace, _, name = each.pod.rpartition("/")
            labels = {"pod_uid": each.uid, "pod_namespace": namespace, "pod_name": name}
            for signal, value in each.signals.items():
                yield Gauge("koord_node_agent_pod_interference_signal", {**labels, "signal": signal}, value)
            if not each.best_effort:
                yield Gauge("koord_node_agent_pod_interfered", labels, float(each.uid in self._state.stored.marks))

    def close(self) -> None:
        """Keeps baselines and marks for the next run."""
        if self.policy.enable or self._state.stored.marks:
            self._keep()

    def _stop(self) -> None:
        """Ends all marks, and forgets rounds; baselines stay."""
        if self._before or self._state.stored.marks:
            self._carry_out(decide(self._state, self.policy, self._clock_ns() + self._wall_ns))
            self._state = DetectionState(self._state.stored)
            self._before, self._newest = {}, ()
            self._keep()

    def _carry_out(self, changes: Iterable[Change]) -> None:
        """Reports changes; the marks are kept before, so that an agent that is killed here still ends them."""
        done = list(changes)
        for change in done:
            self._state.apply(change)
        if done:
            self._keep()
        for change in done:
            if isinstance(change, Ended):
                self._report_action(InterferenceEnded(change.uid, cast("_Reason", change.reason)))
            else:
                self._report_action(interfered(change, self.policy, suppresses=self._can_suppress))

    def _load(self) -> Stored:
        if self._file is None:
            return Stored()
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Stored)
        except FileNotFoundError:
            return Stored()
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("the baselines of pods are learned anew", extra={"file": str(self._file), "why": str(error)})
            return Stored()

    def _keep(self) -> None:
        self._kept_ns = self._clock_ns()
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, msgspec.json.encode(self._state.stored))
        except OSError as error:
            if not self._unwritable:
                log.warning("the baselines of pods cannot be kept over a restart", extra={"error": str(error)})
            self._unwritable = True


_Reason = Literal["recovered", "gone", "disabled"]
_Answer = Literal["none", "suppress", "migrate", "hint"]


def samples(
    pods: Iterable[PodCgroups],
    best_effort: frozenset[str],
    before: Mapping[str, Counters],
    after: Mapping[str, Counters],
) -> Iterator[PodSample]:
    """Yields the pods that were read twice, with signals (not of best effort) and activity in between."""
    for each in pods:
        uid = each.pod.metadata.uid
        if uid not in before or uid not in after:
            continue
        suspect = uid in best_effort
        signals = {} if suspect else signals_of(before[uid], after[uid])
        activity = activity_of(before[uid], after[uid])
        yield PodSample(uid, each.pod.metadata.key, workload_of(each.pod), suspect, signals, activity)


def workload_of(pod: Pod) -> str:
    """Returns `namespace/Kind/name` of the pod's controller; of a ReplicaSet without the hash of its template, so that
    a rollout keeps the baselines. A pod without a controller is a workload of its own.
    """
    owner, namespace = pod.metadata.controller, pod.metadata.namespace
    if owner is None or owner.kind == "Node":
        return f"{namespace}/Pod/{pod.metadata.name}"
    name = owner.name.rpartition("-")[0] if owner.kind == "ReplicaSet" else ""
    return f"{namespace}/{owner.kind}/{name or owner.name}"


def interfered(change: Started, policy: Policy, *, suppresses: bool) -> Interfered:
    """Returns the report of a pod that is marked."""
    stronger = policy.answer == SUPPRESS and suppresses
    done = f"best effort has {policy.suppress_percent} % of its threshold" if stronger else ""
    return Interfered(
        change.uid,
        change.since_ns,
        tuple(
            SignalDeviation(each.signal, each.value, each.baseline, each.limit)  # type: ignore[arg-type]  # of SIGNALS
            for each in change.deviations
        ),
        tuple(
            SuspectedNeighbour(each.uid, each.correlation_percent, each.signal, each.activity, each.value)  # type: ignore[arg-type]  # of SIGNALS
            for each in change.suspects
        ),
        cast("_Answer", policy.answer),
        done,
    )
