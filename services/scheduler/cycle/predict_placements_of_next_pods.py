"""Batch look-ahead: the next pods of a cycle, each of a class of its own, are placed in one compiled pass before their
turn.

It applies to request variants, where all plugins are arithmetic or give the same result for all of them. The
predictions hold as long as the cycle goes as predicted; the result is that of placing the pods one by one.
"""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.active_plugins import ActivePlugins
from services.scheduler.cycle.joint_placement_of_similar_classes import PredictedPlacement, VariantBatch
from services.scheduler.cycle.rows_changed_by_this_cycle import RowChanges
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord

MAX_PODS, MIN_PODS = 64, 4
"""Maximum and minimum number of pods placed ahead: a larger batch loses more when a cycle does not go as predicted."""

MAX_FUTILE = 3
"""Number of fruitless batches in a cycle after which request variants are placed one by one: most of them may fit on no
node.
"""


class BatchLookahead:
    """The predicted placements of a cycle."""

    def __init__(self, active_for: Callable[[PodClass], ActivePlugins]) -> None:
        """Begins without predictions.

        Args:
            active_for: returns the plugins that apply to a class and its request variants.
        """
        self._active_for = active_for
        self._batches: dict[ActivePlugins, VariantBatch] = {}
        self._futile: dict[ActivePlugins, int] = {}
        self._predicted: deque[tuple[PodRecord, PredictedPlacement]] = deque()
        self._at = (0, 0)  # numbers of row changes and of undos when the first of them comes

    def next_placement(
        self, pod: PodRecord, changes: RowChanges, behind: Callable[[PodRecord], Iterable[PodRecord]]
    ) -> PredictedPlacement | None:
        """Returns the predicted placement of the pod, which the caller must carry out; None when the pod must be
        evaluated.

        Args:
            changes: of the cycle so far; the placement of each predicted pod is one.
            behind: yields the pod and those behind it, as long as each is the only one of its class in the cycle.
        """
        if not self._holds(pod, changes):
            self._predicted.clear()
            self._look(behind(pod))
        if not self._predicted:
            return None
        self._at = len(changes.entries) + 1, changes.undone
        return self._predicted.popleft()[1]

    def _holds(self, pod: PodRecord, changes: RowChanges) -> bool:
        """Returns True when the pod is the next predicted one, and the last placement matched its prediction."""
        next_placement = self._predicted
        return (
            bool(next_placement)
            and next_placement[0][0] is pod
            and (len(changes.entries), changes.undone) == self._at
            and changes.entries[-1].predicted
        )

    def _look(self, line: Iterable[PodRecord]) -> None:
        pods = iter(line)
        first = next(pods, None)
        if first is None or first.pod_class is None:
            return
        active = self._active_for(first.pod_class)
        if self._futile.get(active, 0) >= MAX_FUTILE:
            return
        following = [(first, first.pod_class)]
        for pod in islice(pods, MAX_PODS - 1):
            if pod.pod_class is None or self._active_for(pod.pod_class) is not active:
                break
            following.append((pod, pod.pod_class))
        if len(following) < MIN_PODS:
            return
        batch = self._batches.get(active)
        if batch is None:
            batch = self._batches[active] = VariantBatch(active, first.pod_class)
        if not batch.is_arithmetic():
            self._futile[active] = MAX_FUTILE
            return
        found = batch.place([pod_class for _, pod_class in following], [name_hash(pod.uid) for pod, _ in following])
        if not found:
            self._futile[active] = self._futile.get(active, 0) + 1
        self._predicted.extend(zip((pod for pod, _ in following), found, strict=False))
