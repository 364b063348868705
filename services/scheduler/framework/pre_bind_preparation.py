"""Writes to the cluster that a plugin needs before a pod can be bound: the PreBind step, done ahead of the decision."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from shared.events import Event


class Preparation(ABC):
    """Writes that a pod needs before it can be bound to a node; it is tried again when they are done.

    Attributes:
        plugin: name of the plugin that requests them.
        node: name of the node.
        reason: code of the reason for which the pod waits.
    """

    plugin: str
    node: str
    reason: str

    @abstractmethod
    def events(self) -> Iterable[Event]:
        """Events of the cycle that request the writes."""
