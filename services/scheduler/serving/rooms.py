"""The room that is being made for pods of others, until those that were asked to go are seen to have gone.

The caller reads the cluster for itself, and may see them leave before we do: it must not be told meanwhile that the pod fits nowhere, or
pods of another node would go for nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.scheduler.pods import PodFacts


class Room(NamedTuple):
    """A node, and who was asked to go from it."""

    node: str
    victims: tuple[str, ...]

    def awaited(self, pods: Mapping[str, PodFacts]) -> bool:
        """Whether some of them are still there, and all of those are on their way."""
        here = [facts for uid in self.victims if (facts := pods.get(uid)) is not None and not facts.ended]
        return bool(here) and all(facts.deleting or facts.is_asked_to_go() for facts in here)


class Rooms:
    """Pod by uid -> the room that is made for it."""

    def __init__(self) -> None:
        self._rooms: dict[str, Room] = {}

    def make(self, pod_uid: str, node: str, victims: Sequence[str], pods: Mapping[str, PodFacts]) -> None:
        """Note who is asked to go for a pod; what was noted for others and has come about is forgotten."""
        self._rooms = {uid: room for uid, room in self._rooms.items() if room.awaited(pods)}
        self._rooms[pod_uid] = Room(node, tuple(victims))

    def awaited(self, pod_uid: str, pods: Mapping[str, PodFacts]) -> str:
        """The node on which room for the pod is on its way; empty for none, and once all have gone or one stays."""
        room = self._rooms.get(pod_uid)
        return room.node if room is not None and room.awaited(pods) else ""
