"""Evaluates all nodes for one pod outside of a cycle: for an extender's caller, a ScheduleExplanation, or a person.

A pure function of the settled cache, the pod and `now`; the pod need not exist in the cluster. The evaluation is that
of a cycle: capacity that is kept for a nominated pod is free for pods of higher priority alone.
"""

from collections.abc import Iterable

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.nominations_and_victims_of_cycle import CyclePreemptions, least_first
from services.scheduler.framework.profile import Profile
from services.scheduler.framework.reasons import NODE_UNKNOWN
from services.scheduler.kernels.merge_and_select_nodes import NO_NODE
from services.scheduler.plugins.registry import text
from services.scheduler.state.pod_equivalence_class import PodClass, class_key, common_part
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.errors import KoordError
from shared.kube.pod import Pod


class BadQuery(KoordError):
    """A query that cannot be evaluated; names the pod and the fault."""


class EvaluationQuery:
    """The evaluation of all nodes for one pod.

    Attributes:
        evaluation: filter results and totals.
    """

    def __init__(self, cache: CycleInputs, pod: Pod | PodRecord, now_ns: int, profile: str = "") -> None:
        """Evaluates by the named profile; else by the one of the pod's scheduler, else by the first.

        Args:
            pod: as its caller has it, or as the State has read it.

        Raises:
            BadQuery: the pod's requests cannot be read, or there is no such profile.
        """
        cache.settle()
        self._cache = cache
        self.pod_class = pod_class = _class_of(cache, pod)
        if pod_class.fault:
            raise BadQuery(f"pod {pod.name if isinstance(pod, PodRecord) else pod.metadata.key}: {pod_class.fault}")
        evaluated_by = _profile(cache, profile, pod_class.scheduler)
        self._transaction = CycleTransaction(cache, now_ns)
        self._count_nominated(pod.uid if isinstance(pod, PodRecord) else pod.metadata.uid)
        self.evaluation = self._transaction.evaluation(evaluated_by, pod_class)

    def _count_nominated(self, uid: str) -> None:
        """Counts the nominated pods of the pod's own and of higher priority on their nodes, the pod itself excepted."""
        cache, cycle = self._cache, CyclePreemptions(self._cache, self._cache.nominated)
        for nominated in reversed(least_first(cache.nominated.values())):
            pod_class, row = nominated.pod_class, cache.table.rows.get(nominated.nominated)
            if pod_class is None or row is None or nominated.uid == uid or pod_class.priority < self.pod_class.priority:
                continue
            leaving = cycle.leaving_from(row, pod_class.priority)
            self._transaction.nominate(nominated, pod_class, cache.profiles[pod_class.scheduler], row, leaving)

    def feasible(self, node: str) -> bool:
        """Returns True when the node passes every filter."""
        row = self._row(node)
        return row >= 0 and bool(self.evaluation.total[row] >= 0)

    def score(self, node: str) -> int:
        """Returns the node's total; -1 when it does not pass."""
        row = self._row(node)
        return int(self.evaluation.total[row]) if row >= 0 else -1

    def allocation(self, node: str) -> dict[str, str] | None:
        """Returns the CPUs and devices for the pod on a node that passed, as annotations; None when they cannot be
        allocated after all.
        """
        return self._transaction.reserve(self.evaluation, self._row(node))

    def feasible_without(self, node: str, uids: Iterable[str]) -> bool:
        """Returns True when the node passes once these pods have left it. Pods that do not run there change nothing."""
        row = self._row(node)
        if row < 0:
            return False
        there = self._cache.on.get(row, {})
        mark = self._transaction.mark()
        for uid in dict.fromkeys(uids):
            if uid in there:
                self._transaction.remove(there[uid], row)
        fits = self._transaction.fits(self.evaluation.profile, self.pod_class, row)
        self._transaction.undo(mark)
        return fits

    def rejection(self, node: str) -> tuple[str, bool]:
        """Returns the reasons of a node that does not pass, as text, and True where no preemption would help."""
        row = self._row(node)
        if row < 0:
            return text(NODE_UNKNOWN), True
        plugin = self.evaluation.profile.filters[int(self.evaluation.by[row])]
        reasons = ", ".join(text(refusal.code, refusal.detail) for refusal in self.evaluation.refusals(row))
        return reasons, plugin.unresolvable(self.pod_class, int(self.evaluation.result[row]))

    def _row(self, node: str) -> int:
        row = self._cache.table.rows.get(node, -1)
        return -1 if row < 0 or self.evaluation.by[row] == NO_NODE else row


def _class_of(cache: CycleInputs, pod: Pod | PodRecord) -> PodClass:
    if isinstance(pod, PodRecord):
        assert pod.pod_class is not None, "only pods that have been read are evaluated"
        return pod.pod_class
    return PodClass(class_key(pod), common_part(pod), cache.view.identity_of(pod))


def _profile(cache: CycleInputs, name: str, scheduler: str) -> Profile:
    if not name:
        return cache.profiles.get(scheduler) or next(iter(cache.profiles.values()))
    profile = cache.profiles.get(name)
    if profile is None:
        raise BadQuery(f"there is no profile {name!r}; the configuration has {', '.join(cache.profiles)}")
    return profile
