"""The next pods of a cycle, each of a class of its own, placed one after the other in one compiled pass before they are taken.

That can be done for classes that differ in amounts alone, where all that is said of them is arithmetic or the same for all of them. What
comes out holds for as long as the cycle goes as foreseen; the result is the one that taking them one by one has.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from services.scheduler.cycle.active_plugins import Panel
from services.scheduler.cycle.evaluation import Placement
from services.scheduler.cycle.request_variants import Foreseen, Kin
from services.scheduler.cycle.tie_break import name_hash
from services.scheduler.state.pod_class import PodAsk
from services.scheduler.state.pod_record import PodFacts

MOST, WORTH_IT = 64, 4
"""So many pods are placed ahead at most, and at least: more are lost when a cycle goes otherwise than foreseen."""

MOST_VAIN = 3
"""After so many vain attempts of a cycle a kin is looked at pod by pod: no node may be left for most of its pods."""


class Ahead:
    """What a cycle foresees."""

    def __init__(self, panel_of: Callable[[PodAsk], Panel]) -> None:
        """Foresee nothing yet.

        Args:
            panel_of: the cycle's panel for a class, narrowed to its kin.
        """
        self._panel_of = panel_of
        self._kins: dict[Panel, Kin] = {}
        self._vain: dict[Panel, int] = {}
        self._goes: deque[tuple[PodFacts, Foreseen]] = deque()
        self._at = 0  # how many placements there are when the first of them comes

    def goes(
        self, pod: PodFacts, placements: Sequence[Placement], behind: Callable[[PodFacts], Iterable[PodFacts]]
    ) -> Foreseen | None:
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

    def _holds(self, pod: PodFacts, placements: Sequence[Placement]) -> bool:
        """Whether it is this pod's turn, and the last one went where it was seen, as it was seen."""
        goes = self._goes
        return bool(goes) and goes[0][0] is pod and len(placements) == self._at and placements[-1].foreseen

    def _look(self, line: Iterable[PodFacts]) -> None:
        pods = iter(line)
        first = next(pods, None)
        if first is None or first.ask is None:
            return
        panel = self._panel_of(first.ask)
        if self._vain.get(panel, 0) >= MOST_VAIN:
            return
        following = [(first, first.ask)]
        for pod in islice(pods, MOST - 1):
            if pod.ask is None or self._panel_of(pod.ask) is not panel:
                break
            following.append((pod, pod.ask))
        if len(following) < WORTH_IT:
            return
        kin = self._kins.get(panel)
        if kin is None:
            kin = self._kins[panel] = Kin(panel, first.ask)
        if not kin.is_arithmetic():
            self._vain[panel] = MOST_VAIN
            return
        found = kin.place([ask for _, ask in following], [name_hash(pod.uid) for pod, _ in following])
        if not found:
            self._vain[panel] = self._vain.get(panel, 0) + 1
        self._goes.extend(zip((pod for pod, _ in following), found, strict=False))
