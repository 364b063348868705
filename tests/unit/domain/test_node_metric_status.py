"""A recorded report as a NodeMetric's status, in the words that upstream's agent uses."""

import pytest

from shared.domain.node_metric_status import status_of
from shared.events.metrics import ClassReported, NodeReported, PodReported, Usage, WindowUsage
from shared.kube.instants import SECOND
from shared.kube.node import ResourceMap
from shared.kube.quantity import amounts, bytes_text, milli_text


@pytest.mark.parametrize(
    ("milli", "text"),
    [(0, "0"), (1, "1m"), (1500, "1500m"), (2000, "2"), (64_000, "64"), (2_000_000, "2k"), (10, "10m")],
)
def test_cpu_is_written_as_the_api_writes_it(milli: int, text: str) -> None:
    assert milli_text(milli) == text
    assert amounts({"cpu": text}) == {"cpu": milli}


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (1000, "1k"), (1023, "1023"), (1024, "1Ki"), (1_000_000, "1000000"), (4 << 30, "4Gi"), ((4 << 30) + 1, "4294967297")],
)  # fmt: skip
def test_memory_is_written_as_the_api_writes_it(size: int, text: str) -> None:
    assert bytes_text(size) == text
    assert amounts({"memory": text}) == {"memory": size}


def test_a_status_has_windows_by_go_duration_and_pods_in_order() -> None:
    report = NodeReported(
        node="n",
        at_ns=1_780_000_000 * SECOND + 999_999_999,
        interval_s=60,
        aggregate_s=300,
        usage=Usage(1500, 1 << 30),
        system=Usage(None, None),
        windows=(WindowUsage(300, (Usage(1, 2),) * 5, ()), WindowUsage(1800)),
        pods=(
            ClassReported("koord-batch", "BE", (PodReported("b/z", 1, 2),)),
            ClassReported("koord-prod", "LS", (PodReported("a/y", 3, None),)),
        ),
    )
    status = status_of(report)
    assert status.update_time == "2026-05-28T20:26:40Z"
    node = status.node_metric
    assert node is not None
    assert node.node_usage == ResourceMap(resources={"cpu": "1500m", "memory": "1Gi"})
    assert node.system_usage == ResourceMap()
    assert [window.duration for window in node.aggregated_node_usages] == ["5m0s", "30m0s"]
    assert list(node.aggregated_node_usages[0].usage or {}) == ["avg", "p50", "p90", "p95", "p99"]
    assert set((node.aggregated_node_usages[1].usage or {}).values()) == {ResourceMap()}, "too few samples: empty maps"
    assert [(pod.namespace, pod.name, pod.priority, pod.qos) for pod in status.pods_metric] == [
        ("a", "y", "koord-prod", "LS"),
        ("b", "z", "koord-batch", "BE"),
    ]
    assert status.pods_metric[0].pod_usage == ResourceMap(resources={"cpu": "3m"})
