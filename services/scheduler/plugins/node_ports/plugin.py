"""NodePorts: two pods cannot listen on the same port of a node. Source: spec/scheduler-core.md 2.2."""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Rows
from services.scheduler.plugins.node_ports import SPEC
from services.scheduler.state.pod_equivalence_class import HostPort, PodClass

_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 (what Kubernetes writes for all of a node's addresses)


class NodePorts(Plugin):
    """Rejects nodes on which a host port of the pod is used; 0.0.0.0 collides with every address."""

    spec: ClassVar[PluginSpec] = SPEC

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Filter result 1: a port is in use."""
        return _NodePortsState(snapshot)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The only reason of the plugin."""
        return (Reason("HostPortTaken"),)


class _NodePortsState(PluginCycleState):
    def __init__(self, snapshot: CycleSnapshot) -> None:
        self._snapshot = snapshot

    def applies_to(self, pod_class: PodClass) -> bool:
        return bool(pod_class.ports)

    def filter(self, pod_class: PodClass, rows: Rows) -> NDArray[np.int64] | None:
        if not pod_class.ports:
            return None  # for no other class: where no port is in use yet, the class's own pods use one
        taken = np.zeros(self._snapshot.size, np.int64)
        for row, held in self._snapshot.ports.items():
            taken[row] = collides(pod_class.ports, held)
        return taken[rows]

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        return int(bool(pod_class.ports) and collides(pod_class.ports, self._snapshot.ports.on(row)))

    def can_predict(self, pod_class: PodClass) -> bool:
        """Returns True for a class without ports."""
        return not pod_class.ports

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> PluginCycleState | None:  # noqa: ARG002
        """The same state for a class without ports: its pods change nothing."""
        return self if self.can_predict(pod_class) else None


def collides(requested: Iterable[HostPort], held: Iterable[HostPort]) -> bool:
    """Returns True where a requested port is in use: same protocol and port, and the same address or 0.0.0.0 on a side."""
    held = tuple(held)
    return any(
        protocol == other_protocol and port == other_port and (ip == other_ip or _EVERY_ADDRESS in (ip, other_ip))
        for ip, protocol, port in requested
        for other_ip, other_protocol, other_port in held
    )
