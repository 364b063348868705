"""Device resources of a node, by the worked examples of spec/slo-controller.md 6.3 and 6.4."""

from typing import Any

from services.slo_controller.overcommit.device_resources import MANAGED, RDMA, device_amounts


def device(vendor: str, *devices: dict[str, Any]) -> dict[str, Any]:
    labels = {"node.koordinator.sh/gpu-vendor": vendor} if vendor else {}
    return {"metadata": {"name": "n", "labels": labels}, "spec": {"devices": list(devices)}}


def gpu(*, healthy: bool = True) -> dict[str, Any]:
    resources = {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory-ratio": "100",
        "koordinator.sh/gpu-memory": "16Gi",
    }
    return {"type": "gpu", "health": healthy, "resources": resources}


def configured(amounts: dict[str, str | None]) -> dict[str, str]:
    return {name.partition("/")[2]: size for name, size in amounts.items() if size is not None}


def test_gp1_healthy_gpus_add_up() -> None:
    found = device_amounts(device("nvidia", gpu(), gpu()))
    assert configured(found.amounts) == {
        "gpu": "200",
        "gpu-core": "200",
        "gpu-memory-ratio": "200",
        "gpu-memory": "32Gi",
    }
    assert found.labels == {"node.koordinator.sh/gpu-vendor": "nvidia"}


def test_gp2_an_unhealthy_gpu_does_not_count() -> None:
    found = device_amounts(device("", gpu(), gpu(healthy=False)))
    assert configured(found.amounts) == {
        "gpu": "100",
        "gpu-core": "100",
        "gpu-memory-ratio": "100",
        "gpu-memory": "16Gi",
    }


def test_gp3_other_vendors_have_no_gpu_resource() -> None:
    npu = {"type": "gpu", "health": True, "resources": {"huawei.com/npu-core": "20"}}
    assert configured(device_amounts(device("huawei", *[npu] * 8)).amounts) == {"npu-core": "160"}


def test_gp4_without_a_healthy_gpu_all_resources_are_removed() -> None:
    for found in (device_amounts(device("nvidia", gpu(healthy=False))), device_amounts(None)):
        assert {name: found.amounts[name] for name in MANAGED} == dict.fromkeys(MANAGED)
        assert found.labels == {}


def test_gp5_shared_gpus_count_a_hundred_each() -> None:
    assert device_amounts(device("", gpu(), gpu(), gpu()), shared=True).amounts["koordinator.sh/gpu.shared"] == "300"


def test_rdma_devices_count_a_hundred_each() -> None:
    def rdma(*health: bool) -> str | None:
        return device_amounts(device("", *({"type": "rdma", "health": each} for each in health))).amounts[RDMA]

    assert [rdma(), rdma(True), rdma(True, True, False), rdma(*[True] * 4)] == [None, "100", "200", "400"]
