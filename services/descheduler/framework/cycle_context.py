"""The inputs and the result of a plugin in a cycle.

Source: spec/descheduler.md 1.2, 1.5, 1.6.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from services.descheduler.framework.eviction_limits import EvictionLimits
from services.descheduler.load_aware.measured_node import Amounts, MeasuredNode, PodOnNode
from services.descheduler.state.measured_nodes import pod_on_node
from services.descheduler.state.observed_cluster import ObservedCluster
from shared.domain.moves_for_waiting_unit import MovesForUnitRequest, MovesForUnitResponse
from shared.events import Event
from shared.events.descheduling import Cause, PassedOver, WaitingUnit
from shared.events.intents import FieldsDesired
from shared.kube.pod import Pod

Filter = Callable[[PodOnNode], str]
"""Returns why a pod may not move, as a phrase; empty where it may."""

MOST_PASSED_OVER = 50
"""Pods that were passed over and are listed in a case."""


class Chosen(NamedTuple):
    """A pod that a plugin chose to move.

    Attributes:
        usage: measured; empty without a report about it.
        allowed: nodes of which its destination is one; None: any node.
        group: pods of the same plugin and group leave only if each of them has a destination; empty: it leaves alone.
        gang: which cannot spare it, so that all members that a plugin chose leave together; empty for none.
        only: the one node that is its destination; empty for any.
    """

    pod: PodOnNode
    node: str
    reason: str
    usage: Amounts
    allowed: Container[str] | None = None
    group: str = ""
    gang: str = ""
    only: str = ""


class UnitsOfPlugin(NamedTuple):
    """The knowledge of a plugin about the units that wait for capacity.

    Attributes:
        answer: the newest question of this cycle, and the scheduler's answer; None before the first.
        resting: names of units for which no moves are planned now.
        tried: unit that was not admitted -> the instant at which its newest case was closed.
        case: that is open or planned for a unit; empty for none.
        left: returns uid of a pod, its `namespace/name`, or the uid of its controller -> nodes that it has left lately.
    """

    answer: tuple[MovesForUnitRequest, MovesForUnitResponse] | None = None
    resting: Container[str] = ()
    tried: Mapping[str, int] = {}
    case: str = ""
    left: Callable[[], Mapping[str, tuple[str, ...]]] = dict


NO_UNITS = UnitsOfPlugin()


class Findings(NamedTuple):
    """The result of a plugin.

    Attributes:
        causes: what is wrong, measured before anything moved.
        sources: nodes that are no destination, since they are what is wrong.
        events: changes of the plugin's own records.
        desired: fields that the plugin wants objects to have; not written in a dry run.
        unit: for which all the chosen pods leave together; None for none.
        question: to the scheduler; with its answer the plugin is run again in the same cycle.
    """

    causes: tuple[Cause, ...] = ()
    sources: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    desired: tuple[FieldsDesired, ...] = ()
    unit: WaitingUnit | None = None
    question: MovesForUnitRequest | None = None


class CycleEvictor:
    """The evictor that a plugin sees: filters, limits, and the pods that it chose.

    Attributes:
        chosen: in order. passed_over: with their reasons, at most `MOST_PASSED_OVER`; passed_over_count: all of them.
    """

    def __init__(
        self,
        filters: Sequence[Filter],
        limits: EvictionLimits,
        usage: Mapping[str, Mapping[str, Amounts]],
        gang_of: Callable[[Pod], str],
    ) -> None:
        """Chooses nothing yet.

        Args:
            usage: node -> pod -> usage that the node measured.
            gang_of: the gang of a pod which cannot spare it; empty for none.
        """
        self._gang_of = gang_of
        self._filters = filters
        self._limits = limits
        self._usage = usage
        self._reasons: dict[str, str] = {}
        self._taken: dict[str, None] = {}
        self.chosen: list[Chosen] = []
        self.passed_over: list[PassedOver] = []
        self.passed_over_count = 0

    def filter(self, pod: PodOnNode) -> bool:
        """Reports whether all filters let a pod move; each pod is checked once."""
        return not self.refusal(pod)

    def refusal(self, pod: PodOnNode) -> str:
        """Returns the first filter's reason; empty where all let the pod move."""
        uid = pod.pod.metadata.uid
        if uid not in self._reasons:
            why = ""
            for each in self._filters:
                if why := each(pod):
                    self._pass_over(pod, pod.pod.spec.node_name, why)
                    break
            self._reasons[uid] = why
        return self._reasons[uid]

    def refusals_of_all(self, pods: Sequence[PodOnNode]) -> dict[str, str]:
        """Returns uid -> why a pod does not leave, where all of them should leave their nodes together; empty where each
        may.
        """
        found: dict[str, str] = {}
        leaving: list[tuple[str, str]] = []
        for pod in pods:
            node, namespace = pod.pod.spec.node_name, pod.pod.metadata.namespace
            if why := self.refusal(pod) or self._limits.refusal(node, namespace, leaving):
                found[pod.pod.metadata.uid] = why
            else:
                leaving.append((node, namespace))
        return found

    def most(self, number: int) -> int:
        """Returns how many pods may still move in this cycle, at most this number."""
        return self._limits.most(number)

    def evict(
        self,
        pod: PodOnNode,
        node: str,
        reason: str,
        allowed: Container[str] | None = None,
        group: str = "",
        only: str = "",
    ) -> bool:
        """Chooses a pod; reports whether the limits of the cycle allow it. A pod is chosen once.

        Args:
            allowed, group, only: see `Chosen`.
        """
        namespace = pod.pod.metadata.namespace
        if pod.pod.metadata.uid in self._taken:
            return False
        if why := self._limits.refusal(node, namespace):
            self._pass_over(pod, node, why)
            return False
        self._limits.count(node, namespace)
        self._taken[pod.pod.metadata.uid] = None
        usage, gang = self._usage.get(node, {}).get(pod.key, {}), self._gang_of(pod.pod) if pod.gang else ""
        self.chosen.append(Chosen(pod, node, reason, usage, allowed, group, gang, only))
        return True

    def is_exhausted(self) -> bool:
        """Reports whether the limit on the total leaves nothing."""
        return self._limits.is_spent()

    def _pass_over(self, pod: PodOnNode, node: str, why: str) -> None:
        self.passed_over_count += 1
        if len(self.passed_over) < MOST_PASSED_OVER:
            self.passed_over.append(PassedOver(pod=pod.key, node=node, why=why))


class CycleContext(NamedTuple):
    """The inputs of a plugin.

    Attributes:
        of: profile and plugin, under which its records are kept.
        args: its arguments.
        nodes: those that the configuration and the profile select, ready ones, sorted by name.
        records: what the State keeps for it.
        evictor: takes the pods that it chooses.
        cluster: all that is observed, for what `nodes` do not show: pods that have ended, and namespaces.
        units: what is known about units that wait.
    """

    of: str
    args: Any
    nodes: Sequence[MeasuredNode]
    records: Any
    evictor: CycleEvictor
    now_ns: int
    cluster: ObservedCluster
    units: UnitsOfPlugin = NO_UNITS

    def ended_on(self, node: str) -> list[PodOnNode]:
        """Returns the pods on a node that have ended, by namespace and name."""
        return [pod_on_node(pod) for pod in self.cluster.pods.ended_on(node)]


class Plugin(Protocol):
    """A plugin of the sets `deschedule` and `balance`: a pure function."""

    def __call__(self, context: CycleContext) -> Findings:
        """Chooses pods by the context's evictor, and returns what it found."""
        ...
