"""The worked examples E19, E20 and E23 of spec/node-agent.md 8."""

import pytest

from services.node_agent.qos_manager.strategies import memory_qos, resctrl
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from shared.kube.slo_config import MemoryQos, QosClass, ResourceQos
from tests.support.pods import kept_pod

GIB = 2**30


def each(uid: str, qos: str, kube: str, request: str, limit: str = "", annotation: str = "") -> NodePod:
    pod = kept_pod(
        uid,
        labels={"koordinator.sh/qosClass": qos},
        annotations={"koordinator.sh/memoryQOS": annotation} if annotation else None,
        requests={"memory": request},
        limits={"memory": limit} if limit else None,
        phase="Running",
        qos_class=kube,
    )
    return NodePod(pod, {"c": uid}, frozenset())


def strategy(**classes: MemoryQos) -> ResourceQos:
    of = {name: QosClass(memory_qos=config) for name, config in classes.items()}
    return ResourceQos(lsr_class=of.get("lsr"), ls_class=of.get("ls"), be_class=of.get("be"))


@pytest.mark.parametrize(
    ("low", "min_", "throttling", "expected"),
    [
        (80, 50, 90, {"memory.min": 536_870_912, "memory.low": 858_993_459, "memory.high": 2_040_107_008}),
        (50, 80, 0, {"memory.min": 858_993_459, "memory.low": 858_993_459, "memory.high": 9_223_372_036_854_775_807}),
    ],
)
def test_e19_a_container(low: int, min_: int, throttling: int, expected: dict[str, int]) -> None:
    config = MemoryQos(min_limit_percent=min_, low_limit_percent=low, throttling_percent=throttling)
    found = memory_qos.desired_values(
        strategy(ls=config), [each("p", "LS", "Burstable", "1Gi", "2Gi")], 64 * GIB, 4096, 2
    )
    assert found.containers["p"] == expected


def test_e20_memory_protection_of_classes() -> None:
    classes = strategy(
        ls=MemoryQos(min_limit_percent=50), lsr=MemoryQos(min_limit_percent=100), be=MemoryQos(min_limit_percent=0)
    )
    pods = [each("ls", "LS", "Burstable", "1Gi"), each("lsr", "LSR", "Guaranteed", "2Gi")]
    found = memory_qos.desired_values(classes, pods, 64 * GIB, 4096, 2)
    assert found.kube["Burstable"]["memory.min"] == 536_870_912
    assert found.kube["Guaranteed"]["memory.min"] == 2_684_354_560


def test_a_pods_annotation_overlays_the_strategy() -> None:
    classes = strategy(ls=MemoryQos(min_limit_percent=50, wmark_ratio=95))
    off, own = (
        memory_qos.desired_values(classes, [each("p", "LS", "Burstable", "1Gi", annotation=text)], GIB, 4096, 2).pods[
            "p"
        ]
        for text in ('{"policy":"none"}', '{"policy":"auto","minLimitPercent":100}')
    )
    assert (off["memory.min"], off["memory.wmark_ratio"]) == (0, 0)
    assert (own["memory.min"], own["memory.wmark_ratio"]) == (GIB, 95)


@pytest.mark.parametrize(
    ("cbm", "start", "end", "mask"), [("7ff", 0, 30, 0xF), ("7ff", 10, 50, 0x3C), ("3ff", 10, 80, 0xFE)]
)
def test_e23_ways_of_the_cache(cbm: str, start: int, end: int, mask: int) -> None:
    assert resctrl.cache_mask(cbm, start, end) == mask


def test_e23_a_line_of_schemata() -> None:
    assert resctrl.schemata_line("L3", "f", [1, 0]) == "L3:0=f;1=f;\n"


@pytest.mark.parametrize(
    ("percent", "vendor", "value"),
    [(35, "GenuineIntel", 40), (90, "GenuineIntel", 90), (30, "AuthenticAMD", 48), (100, "AuthenticAMD", 2048)],
)
def test_e23_memory_bandwidth(percent: int, vendor: str, value: int) -> None:
    assert resctrl.bandwidth(percent, vendor) == value
