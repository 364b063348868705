"""The hooks that give a container the devices of its pod (spec/node-agent.md 4.7)."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.node_agent.devices.rdma_char_devices import RdmaCharDevices
from services.node_agent.runtime_hooks.container_hooks import (
    Adjustment,
    BindMount,
    CharDevice,
    ContainerContext,
    Hook,
    HookFailed,
    run_hooks,
)
from services.node_agent.runtime_hooks.gpu_environment import gpu_environment
from services.node_agent.runtime_hooks.rdma_devices import rdma_devices
from tests.support.sysfs_trees import put, rdma_card, virtual_function

LIBRARY = "/usr/local/vgpu/libvgpu.so"
HAMI = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
CARD, FUNCTION = "0000:1f:00.0", "0000:1f:00.2"
MANAGER = CharDevice("/dev/infiniband/rdma_cm", 10, 58)


def gpu(minor: int, **resources: str) -> dict[str, Any]:
    amounts = {f"koordinator.sh/{name.replace('_', '-')}": text for name, text in resources.items()}
    return {"minor": minor, "id": f"GPU-{minor}", "resources": amounts}


def context(labels: dict[str, str] | None = None, text: str = "", **devices: list[dict[str, Any]]) -> ContainerContext:
    annotations = {"scheduling.koordinator.sh/device-allocated": text or json.dumps(devices)}
    return ContainerContext("default/train", "uid-1", labels or {}, annotations, "main")


def half(minor: int = 1, **more: str) -> dict[str, Any]:
    return gpu(minor, gpu_core="50", gpu_memory="8Gi", gpu_memory_ratio="50", **more)


def on_gpus(of: ContainerContext, *, monitor: bool = False) -> Adjustment:
    return gpu_environment(LIBRARY, monitor=monitor)(of)


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    card = rdma_card(tmp_path, f"pci0000:16/{CARD}", "mlx5_0")
    virtual_function(tmp_path, card, 0, FUNCTION)
    put(card / "infiniband_verbs/uverbs0/dev", "231:192\n")
    put(tmp_path / "bus/pci/devices" / FUNCTION / "infiniband_verbs/uverbs7/dev", "231:199\n")
    put(tmp_path / "class/misc/rdma_cm/dev", "10:58\n")
    return tmp_path


def on_cards(sys: Path) -> Hook:
    found = RdmaCharDevices(sys)
    return rdma_devices(found.verbs, found.connection_manager)


def test_a_container_sees_the_gpus_of_its_pod_in_the_order_of_the_annotation() -> None:
    assert on_gpus(context(gpu=[gpu(3), gpu(0)])) == Adjustment({"NVIDIA_VISIBLE_DEVICES": "3,0"})


def test_a_pod_without_gpus_gets_nothing() -> None:
    assert on_gpus(context(rdma=[{"minor": 0}])) == Adjustment()
    assert on_gpus(ContainerContext("default/web", "u", HAMI, {}, "main")) == Adjustment()


def test_hami_core_limits_memory_and_cores_of_a_shared_gpu() -> None:
    assert on_gpus(context(HAMI, gpu=[half()])) == Adjustment(
        {
            "NVIDIA_VISIBLE_DEVICES": "1",
            "CUDA_DEVICE_MEMORY_LIMIT": str(8 * 2**30),
            "CUDA_DEVICE_SM_LIMIT": "50",
            "LD_PRELOAD": LIBRARY,
        },
        (BindMount(LIBRARY, LIBRARY), BindMount("/tmp/vgpulock", "/tmp/vgpulock")),
    )


def test_a_shared_gpu_without_cores_has_no_limit_of_them() -> None:
    found = on_gpus(context(HAMI, gpu=[gpu(0, gpu_memory="1Gi", gpu_memory_ratio="10")]))
    assert "CUDA_DEVICE_SM_LIMIT" not in found.env
    assert found.env["CUDA_DEVICE_MEMORY_LIMIT"] == str(2**30)


@pytest.mark.parametrize(
    ("labels", "devices"),
    [
        (HAMI, [gpu(0, gpu_core="100", gpu_memory="80Gi", gpu_memory_ratio="100")]),
        ({}, [half()]),
        ({"koordinator.sh/gpu-isolation-provider": "other"}, [half()]),
    ],
)
def test_whole_gpus_and_other_isolators_get_no_library(labels: dict[str, str], devices: list[dict[str, Any]]) -> None:
    found = on_gpus(context(labels, gpu=devices))
    assert set(found.env) == {"NVIDIA_VISIBLE_DEVICES"}
    assert not found.mounts


def test_the_monitor_of_hami_core_has_a_folder_for_each_container() -> None:
    found = on_gpus(context(HAMI, gpu=[half()]), monitor=True)
    assert found.env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == "/usr/local/vgpu/uid-1_main.cache"
    folder = BindMount("/usr/local/vgpu/containers/uid-1_main", "/usr/local/vgpu", scratch=True)
    assert found.mounts[0] == folder, "the library's own mount lies in it"


@pytest.mark.parametrize(("uid", "container"), [("../../etc", "main"), ("uid-1", "/../x"), ("uid\0", "main")])
def test_a_folder_of_a_container_is_nowhere_else(uid: str, container: str) -> None:
    with pytest.raises(HookFailed, match="is no name of a folder"):
        on_gpus(context(HAMI, gpu=[half()])._replace(pod_uid=uid, container=container), monitor=True)


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (gpu(0, gpu_memory="8Gi"), "its first GPU has no koordinator.sh/gpu-memory-ratio, which HAMi-core needs"),
        (gpu(0, gpu_memory_ratio="50"), "its first GPU has no koordinator.sh/gpu-memory, which HAMi-core needs"),
        (gpu(0, gpu_memory="lots", gpu_memory_ratio="50"), "koordinator.sh/gpu-memory of its first GPU: "),
    ],
)
def test_amounts_that_hami_core_needs_and_lacks_fail_the_hook(device: dict[str, Any], why: str) -> None:
    with pytest.raises(HookFailed) as failed:
        on_gpus(context(HAMI, gpu=[device]))
    assert str(failed.value).startswith(f"hook GPUEnvInject for container main of pod default/train: {why}")


@pytest.mark.parametrize("text", ["{", "[]", '{"gpu":3}', '{"gpu":[{"minor":"x"}]}', "[" * 10_000])
def test_an_annotation_that_cannot_be_read_fails_the_hook(text: str) -> None:
    with pytest.raises(HookFailed, match=r"annotation scheduling.koordinator.sh/device-allocated cannot be read"):
        on_gpus(context(text=text))


def test_the_verbs_device_of_a_card_and_the_connection_manager_are_injected(sys: Path) -> None:
    found = on_cards(sys)(context(rdma=[{"minor": 0, "id": CARD}]))
    assert found == Adjustment(devices=(MANAGER, CharDevice("/dev/infiniband/uverbs0", 231, 192, 0o666)))


def test_virtual_functions_are_given_in_place_of_their_card(sys: Path) -> None:
    extension = {"vfs": [{"minor": -1, "busID": FUNCTION}]}
    found = on_cards(sys)(context(rdma=[{"minor": 0, "id": CARD, "extension": extension}]))
    assert found.devices == (MANAGER, CharDevice("/dev/infiniband/uverbs7", 231, 199))


def test_a_pod_without_cards_gets_no_device(sys: Path) -> None:
    assert on_cards(sys)(context(gpu=[gpu(0)])) == Adjustment()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("0000:99:00.0", "PCI function 0000:99:00.0 has no verbs device"),
        ("../../../etc", "'../../../etc' is no PCI address"),
        ("", "'' is no PCI address"),
    ],
)
def test_a_card_that_the_node_does_not_have_fails_the_hook(sys: Path, address: str, why: str) -> None:
    with pytest.raises(HookFailed, match="hook RDMADeviceInject for container main of pod default/train: ") as failed:
        on_cards(sys)(context(rdma=[{"minor": 0, "id": address}]))
    assert why in str(failed.value)


@pytest.mark.parametrize("text", ["", "10", "a:b\n", "10:58:1"])
def test_a_device_number_that_is_none_fails_the_hook(sys: Path, text: str) -> None:
    (sys / "class/misc/rdma_cm/dev").write_text(text)
    with pytest.raises(HookFailed, match="rdma_cm/dev has no device number"):
        on_cards(sys)(context(rdma=[{"minor": 0, "id": CARD}]))


def test_without_the_connection_manager_the_hook_names_the_module(sys: Path) -> None:
    (sys / "class/misc/rdma_cm/dev").unlink()
    with pytest.raises(HookFailed, match="load the kernel module rdma_ucm"):
        on_cards(sys)(context(rdma=[{"minor": 0, "id": CARD}]))


def test_hooks_run_in_the_order_of_their_names_and_their_changes_add_up(sys: Path) -> None:
    hooks = {"RDMADeviceInject": on_cards(sys), "GPUEnvInject": gpu_environment(LIBRARY, monitor=False)}
    found = run_hooks(hooks, context(gpu=[gpu(2)], rdma=[{"minor": 0, "id": CARD}]))
    assert found.applied == ("GPUEnvInject", "RDMADeviceInject")
    assert found.adjustment.env == {"NVIDIA_VISIBLE_DEVICES": "2"}
    assert [device.path for device in found.adjustment.devices] == [MANAGER.path, "/dev/infiniband/uverbs0"]
    assert run_hooks(hooks, context(gpu=[gpu(2)])).applied == ("GPUEnvInject",)


def test_of_two_values_of_a_variable_the_later_hooks_is_in_force() -> None:
    hooks = {"b": lambda _: Adjustment({"X": "2"}), "a": lambda _: Adjustment({"X": "1"})}
    assert run_hooks(hooks, context()).adjustment.env == {"X": "2"}


def test_a_hook_that_fails_leaves_the_others_and_with_the_policy_fail_stops_them(sys: Path) -> None:
    hooks = {"RDMADeviceInject": on_cards(sys), "GPUEnvInject": gpu_environment(LIBRARY, monitor=False)}
    broken = context(HAMI, gpu=[gpu(0)], rdma=[{"minor": 0, "id": CARD}])
    ignored = run_hooks(hooks, broken)
    assert [type(failure) for failure in ignored.failures] == [HookFailed]
    assert ignored.applied == ("RDMADeviceInject",)
    stopped = run_hooks(hooks, broken, stop_at_failure=True)
    assert (len(stopped.failures), stopped.applied) == (1, ())
