"""LoadAwareScheduling as a plugin of a profile: fits the load-aware account to the framework.

The rules are in `load_aware/`; this names its reasons, keeps its ledger by row, and counts the pods of a cycle.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from services.scheduler.cache.plugin_cache import Ledger
from services.scheduler.cycle.cycle_snapshot import Room
from services.scheduler.framework.plugin import Normalize
from services.scheduler.framework.plugin_state import PluginState
from services.scheduler.framework.reasons import Reason
from services.scheduler.framework.score_terms import Left
from services.scheduler.kernels.tiles import Int64, Rows
from services.scheduler.plugins.load_aware_scheduling import LoadAwareArgs, LoadAwareLedger, LoadState
from services.scheduler.plugins.load_aware_scheduling.api_view import told
from services.scheduler.plugins.load_aware_scheduling.estimate_window import uses_its_node
from services.scheduler.plugins.load_aware_scheduling.plugin_state import reasons
from services.scheduler.state.cluster_event import Change
from services.scheduler.state.pod_class import PodAsk
from services.scheduler.state.pod_record import Held, PodFacts
from shared.kube.instants import BadTime, instant_ns
from shared.kube.node import Node, NodeMetric
from shared.kube.quantity import BadQuantity

_LOAD = frozenset((Change.METRIC, Change.POD_RELEASED, Change.ALLOCATABLE, Change.ANNOTATIONS))


class LoadAwareScheduling:
    """Refuses nodes whose measured usage would exceed the thresholds; prefers those with the most room left."""

    name: ClassVar[str] = "LoadAwareScheduling"
    node_only: ClassVar[bool] = False
    cross_node: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    queueing_hints: ClassVar[Mapping[str, frozenset[Change]]] = dict.fromkeys(
        ("NodeMetricExpired", "UsageExceedsThreshold", "AggregatedUsageExceedsThreshold"), _LOAD
    )

    def __init__(self, args: LoadAwareArgs) -> None:
        self.args = args
        self._reasons = reasons(args.resources())

    def new_ledger(self) -> Ledger:
        """Measured and estimated load by row."""
        return RowLedger(self.args)

    def new_state(self, room: Room, ledger: Ledger | None, now_ns: int) -> PluginState:
        """A verdict is the load-aware package's code."""
        assert isinstance(ledger, RowLedger), "the index hands back what new_ledger made"
        ledger.account.fleet.grow(room.size)  # a row may be known by a pod alone
        return _LoadAwareSchedulingState(ledger.account.new_state(), ledger.account, now_ns)

    def reasons(self, ask: PodAsk, verdict: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The first resource that is exceeded, or an expired report."""
        return (self._reasons[verdict],)

    def unresolvable(self, ask: PodAsk, verdict: int) -> bool:  # noqa: ARG002
        """A pod that goes lowers what is estimated."""
        return False


class RowLedger:
    """LoadAwareLedger, fed with what the index holds.

    Attributes:
        account: the load of the nodes.
    """

    def __init__(self, args: LoadAwareArgs) -> None:
        self.account = LoadAwareLedger(args)

    def told(self, row: int) -> dict[str, Any]:
        """How the load of the node in a row is reckoned, for the services engine's view."""
        return told(self.account, row)

    def set_node(self, row: int, node: Node | None) -> None:
        """The node in the row, None when it is gone."""
        try:
            self.account.set_node(row, node)
        except BadQuantity:
            self.account.set_node(row, None)  # without an allocatable that can be read there is nothing to compare with

    def set_metric(self, row: int, metric: NodeMetric | None, updated: str) -> None:
        """The node's report; `updated` is the time of the last one that had a time."""
        try:
            self.account.set_metric(row, metric, instant_ns(updated) if updated else None)
        except (BadQuantity, BadTime):
            self.account.set_metric(row, None)  # a report that cannot be read is none

    def assign(self, row: int, uid: str, held: Held) -> None:
        """Counts the pod, unless it stands for a Reservation, or its requests cannot be read, so that nothing can be estimated."""
        ask = held.load_ask or held.ask
        if ask.fault or not uses_its_node(ask.pod):
            return
        template = ask.memo.get(self)
        if template is None:
            template = ask.memo[self] = self.account.templates.of(ask.pod, ask.asked)
        self.account.count(uid, row, held.name, template, held.assigned_ns, held.initialized_ns or None)

    def release(self, row: int, uid: str, held: Held) -> None:  # noqa: ARG002 (the account knows by uid)
        """Counts the pod no longer."""
        self.account.release(uid)


class _LoadAwareSchedulingState:
    """LoadState at the instant of the cycle."""

    def __init__(self, state: LoadState, account: LoadAwareLedger, now_ns: int) -> None:
        self._state = state
        self._account = account
        self._now_ns = now_ns
        self._as_foreseen = True
        self._expected: list[bool] = []

    def applies_to(self, ask: PodAsk) -> bool:
        """Whether there is a limit for pods of its priority."""
        return self._state.limits(ask.pod)

    def score_term(self, ask: PodAsk) -> Left | None:
        """What the pod would leave."""
        self._account.templates.of(ask.pod, ask.asked)
        return self._state.score_term(ask.pod, self._now_ns)

    def filter(self, ask: PodAsk, rows: Rows) -> Int64:
        return self._state.filter(ask.pod, rows, self._now_ns)

    def score(self, ask: PodAsk, rows: Rows) -> Int64:
        return self._state.score(ask.pod, rows, self._now_ns)

    def filter_at(self, ask: PodAsk, row: int) -> int:
        return self._state.filter_at(ask.pod, row, self._now_ns)

    def score_at(self, ask: PodAsk, row: int) -> int:
        return self._state.score_at(ask.pod, row, self._now_ns)

    def place(self, pod: PodFacts, ask: PodAsk, row: int) -> None:
        if not uses_its_node(ask.pod):
            self._as_foreseen = False
            return
        template = self._account.templates.of(ask.pod)
        block = self._state.add(row, pod.name, template, self._now_ns)
        unseen = template.unseen
        self._as_foreseen = unseen is not None and (block is unseen[0] or block is unseen[1])

    def count_predicted(self, pods: Sequence[PodFacts], ask: PodAsk, rows: Sequence[int]) -> int:
        """Those that no report names yet, up to the first that one does."""
        names = (pod.name for pod in pods)
        self._expected = self._state.unseen_of(rows, names, self._account.templates.of(ask.pod), self._now_ns)
        return len(self._expected)

    def place_all(self, pods: Sequence[PodFacts], ask: PodAsk, rows: Sequence[int]) -> None:
        self._state.add_unseen(rows, self._account.templates.of(ask.pod), self._expected[: len(pods)])
        self._as_foreseen = True

    def can_predict(self, ask: PodAsk) -> bool:
        """Whether the class's estimate is all that counts for its pods."""
        return self._state.can_predict(ask.pod)

    def after_one_more(self, ask: PodAsk, room: Room) -> PluginState | None:  # noqa: ARG002
        """With the class's estimate on every node; what prod pods use is not foreseen."""
        fuller = self._state.after_one_more(ask.pod)
        return None if fuller is None else _LoadAwareSchedulingState(fuller, self._account, self._now_ns)

    def matched_prediction(self) -> bool:
        """Whether the last pod counted by its estimate, neither more nor less."""
        return self._as_foreseen
