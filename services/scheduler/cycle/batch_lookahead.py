"""The next pods of a cycle, each of a class of its own, placed one after the other in one compiled pass before they are taken.

That can be done for classes that differ in amounts alone, where all that is said of them is arithmetic or the same for all of them. What
comes out holds for as long as the cycle goes as foreseen; the result is the one that taking them one by one has.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.active_plugins import ActivePlugins
from services.scheduler.cycle.evaluation import Placement
from services.scheduler.cycle.request_variants import PredictedPlacement, VariantBatch
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import PodRecord

MOST, WORTH_IT = 64, 4
"""So many pods are placed ahead at most, and at least: more are lost when a cycle goes otherwise than foreseen."""

MOST_VAIN = 3
"""After so many vain attempts of a cycle request variants are looked at pod by pod: no node may be left for most of its pods."""


class BatchLookahead:
    """What a cycle foresees."""

    def __init__(self, panel_of: Callable[[PodClass], ActivePlugins]) -> None:
        """Foresee nothing yet.

        Args:
            panel_of: the cycle's panel for a class, narrowed to its request variants.
        """
        self._panel_of = panel_of
        self._batches: dict[ActivePlugins, VariantBatch] = {}
        self._vain: dict[ActivePlugins, int] = {}
        self._goes: deque[tuple[PodRecord, PredictedPlacement]] = deque()
        self._at = 0  # how many placements there are when the first of them comes

    def goes(
        self, pod: PodRecord, placements: Sequence[Placement], behind: Callable[[PodRecord], Iterable[PodRecord]]
    ) -> PredictedPlacement | None:
        """Where the pod goes; None when it has to be looked at closely. Who is told so places it there.

        Args:
            placements: of the cycle so far.
            behind: the pod and those that come behind it, for as long as each is the only one of its class; none when the pod is not.
        """
        if not self._holds(pod, placements):
            self._goes.clear()
            self._look(behind(pod))
            self._at = len(placements)
        if not self._goes:
            return None
        self._at += 1
        return self._goes.popleft()[1]

    def _holds(self, pod: PodRecord, placements: Sequence[Placement]) -> bool:
        """Whether it is this pod's turn, and the last one went where it was seen, as it was seen."""
        goes = self._goes
        return bool(goes) and goes[0][0] is pod and len(placements) == self._at and placements[-1].predicted

    def _look(self, line: Iterable[PodRecord]) -> None:
        pods = iter(line)
        first = next(pods, None)
        if first is None or first.pod_class is None:
            return
        active = self._panel_of(first.pod_class)
        if self._vain.get(active, 0) >= MOST_VAIN:
            return
        following = [(first, first.pod_class)]
        for pod in islice(pods, MOST - 1):
            if pod.pod_class is None or self._panel_of(pod.pod_class) is not active:
                break
            following.append((pod, pod.pod_class))
        if len(following) < WORTH_IT:
            return
        batch = self._batches.get(active)
        if batch is None:
            batch = self._batches[active] = VariantBatch(active, first.pod_class)
        if not batch.is_arithmetic():
            self._vain[active] = MOST_VAIN
            return
        found = batch.place([pod_class for _, pod_class in following], [name_hash(pod.uid) for pod, _ in following])
        if not found:
            self._vain[active] = self._vain.get(active, 0) + 1
        self._goes.extend(zip((pod for pod, _ in following), found, strict=False))
