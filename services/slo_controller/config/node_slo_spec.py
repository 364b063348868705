"""The spec of a node's NodeSLO: the QoS strategies that its agent applies.

Source: spec/slo-controller.md 7; upstream pkg/slo-controller/nodeslo.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from services.slo_controller.config.slo_configmap import SloConfig
from shared.domain.node_selection import first_match
from shared.kube.json_text import json_value
from shared.kube.meta import Metadata
from shared.kube.quantity import BadQuantity, nanos
from shared.kube.quantity_text import notation_of, quantity_text
from shared.kube.slo_config import CpuBurst, InterferenceStrategy, Part, ResourceQos, ResourceThreshold, SystemStrategy

BANDWIDTH = "node.koordinator.sh/network-bandwidth"


def node_slo_spec(config: SloConfig, node: Metadata) -> dict[str, Any]:
    """Builds the spec as plain JSON: per section the first node strategy that selects the node, else the cluster's.

    A bandwidth in the node's annotation takes precedence over the configured one. A bandwidth that cannot be read
    leaves out the whole `systemStrategy`.
    """
    labels = node.labels or {}
    spec: dict[str, Any] = {
        "resourceUsedThresholdWithBE": _plain(_of(config.threshold, labels, ResourceThreshold)),
        "resourceQOSStrategy": _plain(_of(config.qos, labels, ResourceQos)),
        "cpuBurstStrategy": _plain(_of(config.burst, labels, CpuBurst)),
    }
    if system := _system(_of(config.system, labels, SystemStrategy), node.annotations or {}):
        spec["systemStrategy"] = system
    entry = first_match(config.host_applications.node_configs, labels)
    if applications := (entry or config.host_applications).applications:
        spec["hostApplications"] = [_plain(application) for application in applications]
    interference = _of(config.interference, labels, InterferenceStrategy)
    if getattr(interference, "enable", None):
        spec["extensions"] = {"interference": _plain(interference)}
    return spec


def _of(section: Any, labels: Mapping[str, str], base: type[Part]) -> Part:
    entry = first_match(section.node_strategies, labels)
    if entry is None:
        cluster: Part = section.cluster_strategy
        return cluster
    return base(**{name: getattr(entry, name) for name in base.__struct_fields__})


def _system(strategy: Part, annotations: Mapping[str, str]) -> dict[str, Any] | None:
    assert isinstance(strategy, SystemStrategy)
    bandwidth = annotations.get(BANDWIDTH) or str(strategy.total_network_bandwidth or "0")
    try:
        text = quantity_text(nanos(bandwidth), notation_of(bandwidth))
    except BadQuantity:
        return None
    return _plain(replace(strategy, total_network_bandwidth=text))


def _plain(part: Part) -> dict[str, Any]:
    """Converts to plain JSON: lists instead of tuples, since the written spec is compared with the observed one."""
    plain: dict[str, Any] = json_value(part)
    return plain
