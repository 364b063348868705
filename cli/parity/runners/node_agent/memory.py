"""Runs resctrl and memory QoS."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.node_agent.qos_manager.strategies import memory_qos, resctrl
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from shared.kube.pod import Pod
from shared.kube.quantity import nanos, value
from shared.kube.slo_config import ResourceQos


def node_pod(raw: Mapping[str, Any]) -> NodePod:
    """Returns a recorded pod with the containers that its status names."""
    statuses = raw.get("status", {}).get("containerStatuses", ())
    return NodePod(
        msgspec.convert(raw, Pod),
        {status["name"]: status["containerID"] for status in statuses if status.get("containerID")},
        frozenset(status["name"] for status in statuses if "running" in status.get("state", {})),
    )


def resctrl_groups(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `resctrl`."""
    return {
        "results": [_schemata(query) for query in given["queries"]],
        "podGroups": [resctrl.group_of(msgspec.convert(pod, Pod)) or "Unknown" for pod in given["pods"]],
    }


def _schemata(query: Mapping[str, Any]) -> dict[str, Any]:
    mask = resctrl.cache_mask(query["cbm"], query["catRangeStartPercent"], query["catRangeEndPercent"])
    bandwidth = resctrl.bandwidth(query["mbaPercent"], query["vendor"])
    answer: dict[str, Any] = {"l3": None, "mb": None}
    if mask is not None:
        answer |= {"l3": f"{mask:x}", "l3Line": resctrl.schemata_line("L3", f"{mask:x}", query["cacheIDs"])}
    if bandwidth is not None:
        answer |= {"mb": str(bandwidth), "mbLine": resctrl.schemata_line("MB", str(bandwidth), query["cacheIDs"])}
    return answer


def memory(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `memoryQOS`."""
    allocatable = given["node"]["status"].get("allocatable", {}).get("memory", "0")
    found = memory_qos.desired_values(
        msgspec.convert(given["resourceQOSStrategy"], ResourceQos),
        [node_pod(pod) for pod in given["pods"]],
        value(nanos(allocatable)),
        given["pageSize"],
        given["cgroupVersion"],
    )
    values = {f"qos/{name}": held for name, held in found.kube.items()}
    values |= {f"pod/{uid}": held for uid, held in found.pods.items()}
    values |= {f"container/{cid}": held for cid, held in found.containers.items()}
    return {"values": {where: held for where, held in values.items() if held}}
