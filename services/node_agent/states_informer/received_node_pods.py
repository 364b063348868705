"""The pods and node objects in force: the newest received, kept in a file over restarts and outages of the bus."""

import logging
from pathlib import Path

from shared.agents import node_pods
from shared.agents.node_pods import BadNodePods, NodePods
from shared.file_replacement import replace_file

log = logging.getLogger(__name__)

FILE = "node-pods.json"


class NodePodsInformer:
    """Keeps the pods and node objects of one node.

    Attributes:
        in_force: the newest message; None before the first one: strategies that need pods wait.
        refused: number of rejected messages.
    """

    def __init__(self, node: str, state_dir: Path) -> None:
        self.in_force: NodePods | None = None
        self.refused = 0
        self._node = node
        self._file = state_dir / FILE
        self._unwritable = False

    def load(self) -> None:
        """Loads the file; an invalid one stays until a newer message replaces it."""
        try:
            self.in_force = node_pods.decode(self._file.read_bytes(), self._node)
        except FileNotFoundError:
            return
        except (OSError, BadNodePods) as error:
            log.warning("the pods kept on this node cannot be used", extra={"file": str(self._file), "why": str(error)})

    def receive(self, data: bytes) -> bool:
        """Applies a message if it is valid and newer; reports whether it is in force now."""
        try:
            found = node_pods.decode(data, self._node)
        except BadNodePods as error:
            self.refused += 1
            log.error(  # noqa: TRY400  the text says what is wrong
                "a message with pods is rejected; the last good one stays in force", extra={"why": str(error)}
            )
            return False
        if self.in_force is not None and found.position <= self.in_force.position:
            return False
        self.in_force = found
        self._keep(data)
        return True

    def _keep(self, data: bytes) -> None:
        """Replaces the file.

        It is not synced: a crash of the machine may lose it, and ingest publishes the pods again.
        """
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, data)
        except OSError as error:
            if not self._unwritable:
                log.warning("the pods cannot be kept over a restart", extra={"error": str(error)})
            self._unwritable = True
