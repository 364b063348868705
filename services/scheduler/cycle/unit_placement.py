"""Places units of several pods: as a whole or not at all.

Source: docs/adr/0022-units-and-plans.md.
"""

from collections.abc import Sequence

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.plan import PlacedPod, RefusedPod
from services.scheduler.cycle.pod_placement import PodPlacement
from services.scheduler.framework.reasons import UNIT_NOT_PLACED
from services.scheduler.queue.units import Unit
from services.scheduler.state.pod_record import PodRecord
from shared.events.scheduling import ClassEvaluated, Rejections


class UnitPlacement:
    """The steps of a cycle for units of several pods."""

    def __init__(self, pods: PodPlacement) -> None:
        self._pods = pods
        self._units = 0  # so far

    def schedule(self, unit: Unit) -> None:
        """Places the pods of a unit one after the other, and undoes all of it when one of them has no node or has to be
        prepared. Such pods preempt none: victims of one pod would be evicted in vain where another has no node.
        """
        mark = self._pods.mark()
        self._units += 1
        prepared: list[tuple[PodRecord, int]] = []
        failed: tuple[PodRecord, ClassEvaluated] | None = None
        for pod in unit.pods:
            found = self._place_member(pod)
            if isinstance(found, ClassEvaluated):
                failed = pod, found
                break
            if found is not None:
                prepared.append((pod, found))
        if failed is None and not prepared:
            return
        self._pods.undo(mark, unit.pods)
        if failed is not None:
            self._pods.plan.decisions.append(RefusedPod(failed[0], self._pods.plan.evaluated(failed[1])))
        else:
            self._prepare_members(prepared)
        self._refuse_others(unit, self._pods.plan.decisions[mark.plan.decisions :])

    def _place_member(self, pod: PodRecord) -> ClassEvaluated | int | None:
        """Places a pod of a unit of several.

        Returns:
            The evaluation with the reasons if no node admits it; the row if it has to be prepared for the node.
        """
        pod_class = pod.pod_class
        assert pod_class is not None, "only pods that have been read are queued"
        if pod_class.fault:
            return self._pods.unreadable()
        self._pods.count_nominated_before(pod_class)
        self._pods.transaction.focus(self._pods.profile(pod_class), pod_class)
        class_, pod_hash = self._pods.class_of(pod_class), name_hash(pod.uid)
        evaluation = class_.evaluation
        evaluation.catch_up()
        row, allocation = self._pods.choose(evaluation, pod, pod_hash)
        if row < 0:
            return evaluation.record(pod_hash)
        self._pods.record_evaluation(class_, row, pod_hash)
        preparation = self._pods.prepare(pod_class, row, evaluation.profile) if class_.is_prepared else None
        score = int(evaluation.total[row])
        self._pods.place(pod, pod_class, row, score, class_.recorded_at, allocation, unit=self._units)
        return None if preparation is None else row

    def _prepare_members(self, prepared: Sequence[tuple[PodRecord, int]]) -> None:
        """Requests the preparations of pods of a unit that fits as a whole."""
        for pod, row in prepared:
            assert pod.pod_class is not None, "it was placed"
            preparation = self._pods.prepare(pod.pod_class, row, self._pods.profile(pod.pod_class))
            if preparation is not None:
                self._pods.wait_for(pod, preparation)

    def _refuse_others(self, unit: Unit, decisions: Sequence[PlacedPod | RefusedPod]) -> None:
        """Refuses the pods of a unit about which there is no decision: they wait for the first one that there is."""
        cause = decisions[0].pod
        decided = {each.pod.uid for each in decisions}
        nodes, plugin = self._pods.alive(), unit.group.plugin if unit.group else ""
        rejected = Rejections(plugin=plugin, code=UNIT_NOT_PLACED, nodes=nodes, detail=cause.name)
        index = self._pods.plan.evaluated(ClassEvaluated(nodes=nodes, feasible=0, rejected=(rejected,)))
        self._pods.plan.decisions += [RefusedPod(pod, index) for pod in unit.pods if pod.uid not in decided]
