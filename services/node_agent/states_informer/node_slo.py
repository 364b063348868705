"""The NodeSLO in force: the newest valid one received, kept in a file over restarts and outages of the bus."""

import logging
from pathlib import Path

import msgspec

from shared.admission.slo_config.strategy_bounds import value_out_of_bounds
from shared.admission.slo_config.strategy_words import unknown_word
from shared.agents import node_slo
from shared.agents.node_slo import BadNodeSlo, NodeSlo
from shared.domain.slo_defaults import NodeSloSpec
from shared.file_replacement import replace_file
from shared.kube.slo_config import HostApplication

log = logging.getLogger(__name__)

FILE = "node-slo.json"


class NodeSloInformer:
    """Keeps the NodeSLO of one node.

    Attributes:
        in_force: the newest valid message; None before the first one: the defaults are in force.
        spec: its spec; None when there is no such object.
        refused: number of rejected messages.
    """

    def __init__(self, node: str, state_dir: Path) -> None:
        self.in_force: NodeSlo | None = None
        self.spec: NodeSloSpec | None = None
        self.refused = 0
        self._node = node
        self._file = state_dir / FILE
        self._unwritable = False

    @property
    def applications(self) -> tuple[HostApplication, ...]:
        """The host applications that it names."""
        return self.spec.host_applications if self.spec is not None else ()

    def load(self) -> None:
        """Loads the file; an invalid one is logged and stays until a newer message replaces it."""
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("the NodeSLO kept on this node cannot be read", extra={"error": str(error)})
            return
        try:
            kept = node_slo.decode(data, self._node)
            self.spec, self.in_force = _checked(kept, self._node), kept
        except BadNodeSlo as error:
            log.warning(
                "the NodeSLO kept on this node cannot be used", extra={"file": str(self._file), "why": str(error)}
            )

    def receive(self, data: bytes) -> bool:
        """Applies a message if it is valid and newer; reports whether it is in force now."""
        try:
            found = node_slo.decode(data, self._node)
            if self.in_force is not None and found.position <= self.in_force.position:
                return False
            spec = _checked(found, self._node)
        except BadNodeSlo as error:
            self.refused += 1
            log.error(  # noqa: TRY400  the text says what is wrong
                "a NodeSLO is rejected; the last good one stays in force",
                extra={"why": str(error), "in_force": self.in_force and self.in_force.position},
            )
            return False
        self.spec, self.in_force = spec, found
        self._keep(data)
        log.info("a NodeSLO is in force", extra={"epoch": found.epoch, "seq": found.seq})
        return True

    def _keep(self, data: bytes) -> None:
        """Replaces the file atomically and syncs it: without it a restart has the defaults until the bus is back."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, data, sync=True)
        except OSError as error:
            if not self._unwritable:
                log.warning(
                    "the NodeSLO cannot be kept; it is lost when the agent ends (KOORD_NODE_AGENT_STATE_DIR)",
                    extra={"error": str(error)},
                )
            self._unwritable = True


def _checked(message: NodeSlo, node: str) -> NodeSloSpec | None:
    if message.spec is None:
        return None
    try:
        spec = msgspec.convert(message.spec, NodeSloSpec)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise BadNodeSlo(node, f"spec{path.rstrip('`')}", reason) from error
    if broken := value_out_of_bounds(spec, pairs_whole=False) or unknown_word(spec):
        raise BadNodeSlo(node, f"spec.{broken[0]}", broken[1])
    return spec
