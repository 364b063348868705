"""Reports the content of the node's NodeResourceTopology: on each change, and repeated at intervals."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from services.node_agent.topology.cpu_model_and_zone_memory import Hardware, read_hardware
from services.node_agent.topology.kubelet_cpu_manager import (
    BadKubeletFile,
    KubeletConfig,
    read_assignments,
    read_config,
)
from services.node_agent.topology.node_resource_topology import Kubelet, topology_report
from shared.agents.actions import TopologyReported
from shared.agents.node_pods import NodePods
from shared.kube.instants import SECOND

log = logging.getLogger(__name__)

KUBELET_POLL_INTERVAL_NS = 10 * SECOND
"""Nanoseconds between two reads of the kubelet's files."""
HARDWARE_POLL_INTERVAL_NS = 60 * SECOND
REPEAT_INTERVAL_NS = 600 * SECOND
"""Nanoseconds after which an unchanged topology is reported again: for a node that came back, or a lost report."""


class TopologyReporter:
    """Reports one node's topology."""

    def __init__(
        self,
        proc: Path,
        sys: Path,
        kubelet: Path,
        kubelet_config: Path,
        gates: Mapping[str, bool],
        report_action: Callable[[TopologyReported], None],
    ) -> None:
        self._proc, self._sys, self._kubelet, self._config = proc, sys, kubelet, kubelet_config
        self._on, self._huge_pages = gates["NodeTopologyReport"], gates["HugePageReport"]
        self._report_action = report_action
        self._hardware: Hardware | None = None
        self._hardware_ns = self._polled_ns = self._reported_ns = 0
        self._node_pods: NodePods | None = None
        self._reported: TopologyReported | None = None
        self._failed = ""
        self._parsed: tuple[tuple[int, int, int], KubeletConfig | None] | None = None

    def run_cycle(self, node_pods: NodePods, now_ns: int) -> None:
        """Reads hardware and kubelet when pods have changed, and at intervals; reports a topology that differs.

        Args:
            node_pods: the node and its pods; without the node nothing is reported.
        """
        if not self._on or node_pods.object is None:
            return
        if node_pods is self._node_pods and now_ns - self._polled_ns < KUBELET_POLL_INTERVAL_NS:
            return
        self._node_pods, self._polled_ns = node_pods, now_ns
        if self._hardware is None or now_ns - self._hardware_ns >= HARDWARE_POLL_INTERVAL_NS:
            self._hardware, self._hardware_ns = read_hardware(self._proc, self._sys), now_ns
        try:
            kubelet = Kubelet(self._kubelet_config(), read_assignments(self._kubelet))
        except BadKubeletFile as error:
            self._warn_once(str(error))
            return
        found = topology_report(self._hardware, kubelet, node_pods.object, node_pods.pods, huge_pages=self._huge_pages)
        if found is None:
            self._warn_once("the kernel's CPUs and memory name different NUMA zones")
        elif found != self._reported or now_ns - self._reported_ns >= REPEAT_INTERVAL_NS:
            self._reported, self._reported_ns = found, now_ns
            self._report_action(found)

    def _kubelet_config(self) -> KubeletConfig | None:
        """Returns the kubelet's configuration; parsed when its file has changed, for YAML takes milliseconds."""
        try:
            found = self._config.stat()
        except OSError:
            return read_config(self._config)
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        if self._parsed is None or self._parsed[0] != stamp:
            self._parsed = stamp, read_config(self._config)
        return self._parsed[1]

    def _warn_once(self, why: str) -> None:
        """Logs a problem unless it is the one logged last."""
        if why != self._failed:
            self._failed = why
            log.warning("the node's topology is not reported again", extra={"why": why})
