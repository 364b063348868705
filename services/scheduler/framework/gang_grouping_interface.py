"""Grouping: a plugin that places pods together, or keeps them from the queue until others exist.

Declared by `groups_pods`. A grouping is a function of the State, kept up to date by the cycle inputs; it can be thrown
away and built anew at any time with the same results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from services.scheduler.framework.reasons import Reason
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.domain.network_topology import GatherSpec


class Membership(NamedTuple):
    """The place of a waiting pod among others.

    Attributes:
        group: key of the pods with which it is placed as a whole or not at all; empty for a unit of its own.
        held_back: the reason for which it is not tried at present; None for a pod that may be tried.
        changed_seq: `cluster` seq of the last change of its group: a pod that was refused before it is tried again.
        released_seq: `scheduling` seq of the last release of a node that was held for a pod of its group: it is no
            reason to try the group again.
        keeps_nomination: while it is held back, the capacity for which pods were evicted stays its own: it is tried
            again without anybody's doing.
    """

    group: str = ""
    held_back: Reason | None = None
    changed_seq: int = 0
    released_seq: int = 0
    keeps_nomination: bool = False


ALONE = Membership()


class Requirement(NamedTuple):
    """The pods that a unit needs: of each part of it so many that the unit may be placed.

    Attributes:
        needed: part -> number of its pods; a part that is not named needs none.
        part_of: uid -> part.
        takes_all: pods beyond those that are needed are placed with the unit where they fit; otherwise they are left to
            later cycles.
    """

    needed: Mapping[str, int]
    part_of: Mapping[str, str]
    takes_all: bool = True


def all_needed(pods: Sequence[PodRecord]) -> Requirement:
    """Returns the requirement of a unit that needs all of its pods."""
    return Requirement({"": len(pods)}, dict.fromkeys((pod.uid for pod in pods), ""))


class Gathering(NamedTuple):
    """The wishes of a unit about the network domains of its pods.

    Attributes:
        order: uid -> place among the pods of the unit; NO_INDEX without one.
        nodes: of the pods of its group that have one, each as often as it has pods.
    """

    spec: GatherSpec
    order: Mapping[str, int]
    nodes: tuple[str, ...]


class GangStart(NamedTuple):
    """A gang of which the needed pods are about to be placed for the first time.

    Attributes:
        gang: its id, `namespace/name`.
        uids: its pods.
        waited_ns, quota, priority, qos: as in GangPlaced.
    """

    gang: str
    uids: frozenset[str]
    waited_ns: int
    quota: str
    priority: str
    qos: str


class UnitFailure(NamedTuple):
    """The first pod of a unit that could not be placed.

    Attributes:
        pod: `namespace/name`.
        message: why, in Kubernetes' words.
        placed: number of pods of the unit that could be placed.
    """

    pod: str
    message: str
    placed: int


class PodGrouping:
    """The groups of a plugin. The defaults group no pod.

    Attributes:
        preempts: pods of lower priority are evicted for units that cannot be placed.
    """

    preempts = False

    def of(self, pod_record: PodRecord) -> Membership:  # noqa: ARG002
        """Returns the present membership of a waiting pod."""
        return ALONE

    def pod_changed(self, uid: str) -> bool:  # noqa: ARG002
        """Notes that a pod changed, was placed or was deleted; returns True where its place depends on other pods, whose
        changes are to be noted first.
        """
        return False

    def gang_changed(self, gang: str) -> None:
        """Notes that the members or the settings of a gang changed."""

    def changed(self) -> Iterable[str]:
        """Returns the uids of the pods whose membership may have changed since the last call."""
        return ()

    def requirement(self, group: str, pods: Sequence[PodRecord]) -> Requirement:  # noqa: ARG002
        """Returns what a unit of these waiting pods of a group needs."""
        return all_needed(pods)

    def gathers(self, group: str) -> bool:  # noqa: ARG002
        """Returns True for a group with wishes about network domains."""
        return False

    def gathering(self, group: str, pods: Sequence[PodRecord]) -> Gathering | None:  # noqa: ARG002
        """Returns the wishes of a unit about network domains; None without any."""
        return None

    def message(self, group: str, failure: UnitFailure) -> str:  # noqa: ARG002
        """Returns the message of the pods that were refused with their unit; empty for that of their reason."""
        return ""

    def holds(self, group: str) -> bool:  # noqa: ARG002
        """Returns True for a group whose placed pods are held on their nodes until the others have one."""
        return False

    def is_still_complete(self, group: str) -> bool:  # noqa: ARG002
        """Returns True while no pod is missing to bind those of a group that are placed."""
        return True

    def held(self, group: str) -> Sequence[PodRecord]:  # noqa: ARG002
        """Returns the pods of a group whose nodes are held, in the order of their uids."""
        return ()

    def expired(self, now_ns: int) -> Iterable[PodRecord]:  # noqa: ARG002
        """Returns the pods whose hold has ended: they waited too long, or their node is gone."""
        return ()

    def next_expiry_ns(self) -> int | None:
        """Returns the next time at which a hold ends; None without any."""
        return None

    def starts(self, group: str, now_ns: int) -> tuple[GangStart, ...]:  # noqa: ARG002
        """Returns the gangs of a group that is placed now and was not before."""
        return ()

    def annotations(self, group: str, count: int) -> Mapping[str, str]:  # noqa: ARG002
        """Returns the annotations that each pod of a unit gets with its binding.

        Args:
            count: number of pods of the unit that are placed together.
        """
        return {}


class ClassGrouping(PodGrouping):
    """Groups pods by their class alone."""

    def __init__(self, key_of: Callable[[PodRecord], str]) -> None:
        self._key_of = key_of

    def of(self, pod_record: PodRecord) -> Membership:
        """Returns the group that the class names."""
        return Membership(self._key_of(pod_record))
