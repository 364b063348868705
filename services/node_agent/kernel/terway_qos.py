"""Writes the files from which Terway, Alibaba Cloud's network plugin, reads shares of the network.

The plugin and its kernel part enforce them; without Terway the files have no effect.
Source: spec/node-agent.md 3.9.
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.qos_manager.strategies import network_qos
from services.node_agent.qos_manager.strategies.network_qos import Share, Shares
from shared.domain.qos import QoS, kubernetes_qos, raw_qos
from shared.domain.slo_defaults import NodeSloSpec

log = logging.getLogger(__name__)

NODE_FILE, PODS_FILE = "global_bps_config", "pod.json"
_PRIORITY = {QoS.SYSTEM: 0, QoS.LSE: 1, QoS.LSR: 1, QoS.LS: 1, QoS.BE: 2}


def node_text(shares: Shares) -> str:
    """Returns the node's file: a line `name value` each, bytes a second.

    Q: a share that is given as a percentage is in bits, as upstream writes it.
    """
    whole = shares.total // 8

    def amounts(name: str, share: Share) -> list[tuple[str, int]]:
        least, most = (
            size if percent else size // 8
            for size, percent in ((share.least, share.least_is_percent), (share.most, share.most_is_percent))
        )
        return [(f"{name}_min", least), (f"{name}_max", most)]

    lines = [
        ("hw_tx_bps_max", whole),
        ("hw_rx_bps_max", whole),
        *amounts("offline_l1_tx_bps", shares.ls_out),
        *amounts("offline_l1_rx_bps", shares.ls_in),
        *amounts("offline_l2_tx_bps", shares.be_out),
        *amounts("offline_l2_rx_bps", shares.be_in),
    ]
    return "".join(f"{name} {size}\n" for name, size in lines)


def pods_text(pods: Iterable[PodCgroups]) -> str:
    """Returns the pods' file: JSON by uid; a pod with an invalid annotation is left out."""
    found: dict[str, Any] = {}
    for each in pods:
        limits = network_qos.limits_of(each.pod)
        if limits is None:
            continue
        meta, qos = each.pod.metadata, raw_qos(each.pod)
        low = kubernetes_qos(each.pod) == "BestEffort"
        found[meta.uid] = {
            "podName": meta.name,
            "podNamespace": meta.namespace,
            "podUID": meta.uid,
            "prio": _PRIORITY.get(qos, 2 if low else 1),
            "cgroupDir": f"/sys/fs/cgroup/net_cls/{each.folder}",
            "qosConfig": {"ingressBandwidth": limits.ingress // 8, "egressBandwidth": limits.egress // 8},
        }
    return msgspec.json.encode(found, order="sorted").decode()


class TerwayFiles:
    """Writes both files while the policy is `terway-qos`, and removes them otherwise."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logged = False

    def reconcile(self, spec: NodeSloSpec, pods: Iterable[PodCgroups]) -> None:
        """Brings the files to the content that a NodeSLO requires."""
        if network_qos.policy(spec) != network_qos.TERWAY:
            self.release()
            return
        self._put(NODE_FILE, node_text(network_qos.shares(spec)))
        self._put(PODS_FILE, pods_text(pods))

    def release(self) -> None:
        """Removes the files."""
        for name in (NODE_FILE, PODS_FILE):
            try:
                (self._folder / name).unlink(missing_ok=True)
            except OSError as error:
                self._warn_once(error)

    def _put(self, name: str, text: str) -> None:
        path = self._folder / name
        try:
            if path.exists() and path.read_text() == text:
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"{name}.tmp")
            temporary.write_text(text)
            temporary.replace(path)
        except OSError as error:
            self._warn_once(error)

    def _warn_once(self, error: OSError) -> None:
        if not self._logged:
            log.warning("Terway's files cannot be written", extra={"folder": str(self._folder), "why": str(error)})
        self._logged = True
