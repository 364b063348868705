"""Quirks of upstream's gangs that recorded scenarios show, as changes of the scheduler's own answer."""

from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum

from services.scheduler.plugins.coscheduling.args import CoschedulingArgs
from services.scheduler.plugins.coscheduling.gang_placement_units import GangCounts, GangGrouping
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.gang import POD_GROUP_LABEL
from shared.kube.pod import Pod


class Quirk(Enum):
    """Behaviour of upstream's that the scheduler does not have; the value is its heading in docs/compat.md."""

    NO_SUB_PRIORITY = "Sub-priorities order pods of equal priority"
    ENDED_MEMBER = "A member that has ended"
    TOO_FEW_TO_PLACE = "A gang with too few pods that can be placed"
    DELETED_POD_GROUP = "A deleted PodGroup keeps its members"
    GROUP_RECORD = "A group of gangs is what its gangs declare at present"
    FORGOTTEN_UNIT = "Members that are bound together stay recognisable"
    NODE_TAKEN_AWAY = "An update does not take a pod's node away"


Quirks = frozenset[Quirk]


class GroupRecords:
    """The records that upstream's groups of gangs share: a gang joins one once, by what it declares at that time."""

    def __init__(self) -> None:
        self._joined: dict[str, str] = {}
        self._satisfied: set[str] = set()

    def of(self, gang: str) -> str:
        """Returns the key of a gang's record; before it joins one, it has its own."""
        return self._joined.get(gang, f"before {gang}")

    def is_satisfied(self, gang: str) -> bool:
        """Returns True once a member of a gang with the same record was bound."""
        return self.of(gang) in self._satisfied

    def observe_pod(self, gang: str, groups: Sequence[str], pod: Pod) -> None:
        """Takes a pod: the first one of a gang without a PodGroup joins it to a record."""
        if not (pod.metadata.labels or {}).get(POD_GROUP_LABEL):
            self._joined.setdefault(gang, ",".join(groups))
        if pod.spec.node_name:
            self._satisfied.add(self.of(gang))

    def observe_pod_group(self, gang: str, groups: Sequence[str], *, returns_early: bool) -> None:
        """Takes a PodGroup, unless its gang has enough pods, and none that waits."""
        if not returns_early:
            self._joined.setdefault(gang, ",".join(groups))

    def forget(self, gang: str) -> None:
        """Forgets a gang that is gone, and its record with the last gang of it."""
        key = self.of(gang)
        self._joined.pop(gang, None)
        if key not in self._joined.values():
            self._satisfied.discard(key)


class UpstreamGangs(GangGrouping):
    """The gangs of a State, with the records of upstream's groups."""

    def __init__(self, view: SchedulerState, args: CoschedulingArgs, is_satisfied: Callable[[str], bool]) -> None:
        super().__init__(view, args)
        self._is_satisfied = is_satisfied

    def counts(self, gang: str) -> GangCounts:
        """Counts the pods of a gang as they are: nobody notes their changes."""
        record = self._view.gangs.gangs.get(gang)
        stages = Counter(self.stage(*member) for member in (record.members if record is not None else {}).items())
        return GangCounts(stages["pending"], stages["placed"], stages["bound"])

    def was_bound(self, gang: str) -> bool:
        """Returns True once a member of a gang with the same record was bound."""
        return self._is_satisfied(gang)
