"""NodeResourcesFitPlus and ScarceResourceAvoidance: the worked examples of spec/scheduler-core.md 5 and 6."""

from collections.abc import Mapping
from typing import Any

import pytest

from services.scheduler.plugins.node_resources_fit_plus.args import BadFitPlusArgs, read_fit_plus_args
from services.scheduler.plugins.node_resources_fit_plus.plugin import NodeResourcesFitPlus, added_by
from services.scheduler.plugins.scarce_resource_avoidance.args import BadScarceArgs, read_scarce_args
from services.scheduler.plugins.scarce_resource_avoidance.plugin import ScarceResourceAvoidance
from shared.kube.pod import Container, Pod, ResourceRequirements
from tests.support.pods import kept_pod
from tests.support.scheduling_world import node, pod
from tests.unit.scheduler.plugin_harness import PluginHarness

GPU, RDMA, STORAGE = "nvidia.com/gpu", "rdma", "ephemeral-storage"
CPU_AND_GPU = {"cpu": {"type": "LeastAllocated", "weight": 1}, GPU: {"type": "MostAllocated", "weight": 2}}


def requesting(*requests: Mapping[str, str], **spec: Any) -> Pod:
    containers = tuple(Container(resources=ResourceRequirements(requests=dict(request))) for request in requests)
    return kept_pod("in", containers=containers, **spec)


@pytest.mark.parametrize(
    ("resources", "gpus", "incoming", "expected"),
    [
        pytest.param(CPU_AND_GPU, "4", requesting({"cpu": "500m", GPU: "1"}), 57, id="1"),
        pytest.param(CPU_AND_GPU, "4", requesting({"cpu": "500m"}), 72, id="2"),
        pytest.param(CPU_AND_GPU, "4", requesting({"memory": "1Gi"}), 100, id="3"),
        pytest.param({"cpu": CPU_AND_GPU["cpu"]}, "4", requesting({"cpu": "500m"}, {}), 70, id="4"),
        pytest.param(CPU_AND_GPU, "0", requesting({"cpu": "500m", GPU: "1"}), 24, id="5"),
    ],
)
def test_fit_plus_example(resources: dict[str, Any], gpus: str, incoming: Pod, expected: int) -> None:
    plugin = NodeResourcesFitPlus(read_fit_plus_args({"resources": resources}, "args"))
    running = pod("running", cpu="600m", memory="2Gi", on="n", extra={GPU: "1"})
    assert PluginHarness(plugin, [node("n", extra={GPU: gpus})], [running]).scores(incoming) == {"n": expected}


def test_what_a_pod_adds_depends_on_the_order_of_its_init_containers() -> None:
    def init(cpu: str, policy: str | None = None) -> Container:
        return Container(resources=ResourceRequirements(requests={"cpu": cpu}), restart_policy=policy)

    main = {"cpu": "1"}
    assert added_by(requesting(main, init_containers=(init("3"), init("2", "Always"))), "cpu") == 5000
    assert added_by(requesting(main, init_containers=(init("2", "Always"), init("3"))), "cpu") == 3000
    assert added_by(requesting(main, overhead={"cpu": "250m"}), "cpu") == 1250


@pytest.mark.parametrize(
    ("resources", "at"),
    [({"cpu": {"weight": -1}}, "weight"), ({"cpu": {"kind": "x"}}, "kind"), (["cpu"], "resources")],
)
def test_fit_plus_arguments_that_are_wrong_are_refused_with_their_place(resources: Any, at: str) -> None:
    with pytest.raises(BadFitPlusArgs, match=at):
        read_fit_plus_args({"resources": resources}, "args")


ALL = {"cpu": "1", "memory": "1Gi", STORAGE: "1Gi"}


@pytest.mark.parametrize(
    ("extra", "incoming", "expected"),
    [
        pytest.param({STORAGE: "9Gi", GPU: "1"}, requesting({"cpu": "1", "memory": "1Gi"}), 50, id="1"),
        pytest.param({STORAGE: "9Gi", GPU: "1"}, requesting({"cpu": "1", "memory": "1Gi", GPU: "1"}), 100, id="2"),
        pytest.param({STORAGE: "9Gi"}, requesting({"cpu": "1", "memory": "1Gi"}), 100, id="3"),
        pytest.param({STORAGE: "9Gi", GPU: "1", RDMA: "1"}, requesting({"cpu": "1"}), 50, id="4"),
        pytest.param({STORAGE: "9Gi", GPU: "1"}, requesting(ALL), 0, id="5"),
        pytest.param({STORAGE: "9Gi", GPU: "1", "x/y": "1"}, requesting({"cpu": "1", "memory": "1Gi"}), 66, id="6"),
    ],
)
def test_scarce_example(extra: dict[str, str], incoming: Pod, expected: int) -> None:
    plugin = ScarceResourceAvoidance(read_scarce_args({"resources": [GPU, RDMA, GPU]}, "args"))
    assert PluginHarness(plugin, [node("n", extra=extra)]).scores(incoming) == {"n": expected}


def test_scarce_arguments_that_are_wrong_are_refused() -> None:
    with pytest.raises(BadScarceArgs, match="resources"):
        read_scarce_args({"resources": "cpu"}, "args")
