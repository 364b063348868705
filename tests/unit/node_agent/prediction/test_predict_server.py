"""Predictions for prod pods from samples. PR1, PR2, PR4 of spec/slo-controller.md 11.4."""

from pathlib import Path

import pytest

from services.node_agent.collectors.usage_sample_types import MICRO, SECOND_NS, Usage, UsageSnapshot
from services.node_agent.prediction.histogram_checkpoint import FOLDER
from services.node_agent.prediction.predict_server import PredictServer
from services.node_agent.report_builder import Forecasts
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.agents import node_pods
from shared.agents.node_pods import NodePods, agent_pod
from shared.agents.report import Forecast
from shared.errors import KoordError
from shared.kube.instants import SECOND, instant_ns
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Pod
from shared.prediction.usage_models import PredictionSettings
from tests.support.pods import kept_pod

GIB = 2**30
NOW_NS = instant_ns("2026-05-01T12:00:00Z")
SETTINGS = PredictionSettings()
NODE = Node(
    metadata=Metadata(name="n"),
    status=NodeStatus(capacity={"cpu": "32", "memory": "64Gi"}, allocatable={"cpu": "32", "memory": "64Gi"}),
)


def pod(name: str, cpu: str, memory: str, *, created: str = "2026-04-01T12:00:00Z", priority: int = 9500) -> Pod:
    amounts = {"cpu": cpu, "memory": memory}
    whole = kept_pod(
        name,
        created=created,
        requests=amounts,
        phase="Running",
        qos_class="Burstable",
        node_name="n",
        priority=priority,
    )
    return agent_pod(whole, name)


def slo_informer(folder: Path, *found: Pod) -> NodePodsInformer:
    kept = NodePodsInformer("n", folder)
    kept.receive(node_pods.encode(NodePods("n", 1, 1, NODE, None, found)))
    return kept


def play(predictor: PredictServer, used: dict[str, tuple[float, int]], seconds: int, begin: int = 0) -> Forecasts:
    """Runs seconds in which pods use cores and bytes, and the node one core more."""
    for second in range(begin, begin + seconds + 1):
        of_pods = {name: Usage(int(cores * MICRO), size) for name, (cores, size) in used.items()}
        node = Usage(
            int((sum(cores for cores, _ in used.values()) + 1) * MICRO), sum(size for _, size in used.values()) + GIB
        )
        predictor.run_cycle(UsageSnapshot(second * SECOND_NS, node, None, None, of_pods))
    return predictor.forecasts


def test_the_unused_request_of_a_prod_pod_is_reclaimable(tmp_path: Path) -> None:
    known = slo_informer(tmp_path, pod("web", "8", "16Gi"), pod("young", "2", "4Gi", created="2026-04-30T13:00:00Z"))
    predictor = PredictServer(known, SETTINGS, None, lambda: NOW_NS)
    assert play(predictor, {"web": (2.0, 2 * GIB)}, 59) == Forecasts()
    found = play(predictor, {"web": (2.0, 2 * GIB)}, 2, begin=60)
    assert found.reclaimable is not None
    assert found.peak is not None
    # By pod: 8000 - trunc(2001 * 1.1), as PR1. By class: 10000 - (2001 + 1035 of the system, 25 of no class) * 1.1.
    assert found.reclaimable.cpu_milli == min(8_000 - 2_201, 10_000 - int((2_001 + 1_035 + 25) * 1.1))
    assert found.reclaimable.memory == 16 * GIB - 2_378_782_927
    assert found.peak.cpu_milli == max(2_201 + 2_000, int((2_001 + 1_035 + 25) * 1.1))


def test_batch_pods_have_nothing_to_reclaim(tmp_path: Path) -> None:
    known = slo_informer(tmp_path, pod("job", "8", "16Gi", priority=5500))
    found = play(PredictServer(known, SETTINGS, None, lambda: NOW_NS), {"job": (1.0, GIB)}, 61)
    assert found.reclaimable == Forecast(0, 0)


def test_without_pods_nothing_is_predicted(tmp_path: Path) -> None:
    predictor = PredictServer(NodePodsInformer("n", tmp_path), SETTINGS, None, lambda: NOW_NS)
    assert play(predictor, {"web": (2.0, GIB)}, 130) == Forecasts()


def test_histograms_survive_a_restart_and_are_removed_with_their_pod(tmp_path: Path) -> None:
    known = slo_informer(tmp_path, pod("web", "8", "16Gi"), pod("gone", "1", "1Gi"))
    play(PredictServer(known, SETTINGS, tmp_path, lambda: NOW_NS), {"web": (6.0, 8 * GIB), "gone": (0.5, GIB)}, 61)
    files = {path.name for path in (tmp_path / FOLDER).iterdir()}
    assert {"web", "gone", "__node__"} <= files
    (tmp_path / FOLDER / "torn").write_text("{")
    (tmp_path / FOLDER / "web.tmp").write_text("{")
    again = PredictServer(
        slo_informer(tmp_path, pod("web", "8", "16Gi")), SETTINGS, tmp_path, lambda: NOW_NS + 60 * SECOND
    )
    found = play(again, {"web": (0.1, GIB)}, 61)
    assert found.reclaimable is not None
    assert found.reclaimable.cpu_milli is not None
    assert found.reclaimable.cpu_milli < 2_000  # six cores were used before
    left = {path.name for path in (tmp_path / FOLDER).iterdir()}
    assert not left & {"gone", "torn", "web.tmp"}


@pytest.mark.parametrize(("count", "place"), [(1, 0), (10, 8), (20, 17), (60, 53)])
def test_p90_is_upstreams(count: int, place: int, tmp_path: Path) -> None:
    from array import array

    from services.node_agent.prediction.predict_server import _p90

    assert _p90(array("q", range(count))) == place


def test_an_invalid_amount_costs_a_minute_and_not_the_agent(tmp_path: Path) -> None:
    known = slo_informer(tmp_path, pod("web", "8", "much"))
    predictor = PredictServer(known, SETTINGS, None, lambda: NOW_NS)
    with pytest.raises(KoordError):
        play(predictor, {"web": (2.0, GIB)}, 61)
    known.receive(node_pods.encode(NodePods("n", 1, 2, NODE, None, (pod("web", "8", "16Gi"),))))
    assert play(predictor, {"web": (2.0, GIB)}, 61, begin=61).reclaimable is not None
