"""The kubelet's answers about its pods, with our devices added (spec/node-agent.md 7.3)."""

import json
from typing import Any

from services.node_agent.pod_resources.allocated_devices import with_allocated_devices
from shared.protobuf_schema import message_classes

WHOLE = message_classes(
    "v1",
    {
        "ListPodResourcesResponse": {"pod_resources": (1, "repeated PodResources")},
        "PodResources": {
            "name": (1, "string"),
            "namespace": (2, "string"),
            "containers": (3, "repeated ContainerResources"),
        },
        "ContainerResources": {
            "name": (1, "string"),
            "devices": (2, "repeated ContainerDevices"),
            "cpu_ids": (3, "repeated int64"),
            "memory": (4, "repeated ContainerMemory"),
            "dynamic_resources": (5, "repeated DynamicResource"),
        },
        "ContainerDevices": {
            "resource_name": (1, "string"),
            "device_ids": (2, "repeated string"),
            "topology": (3, "TopologyInfo"),
        },
        "TopologyInfo": {"nodes": (1, "repeated NUMANode")},
        "NUMANode": {"ID": (1, "int64")},
        "ContainerMemory": {"memory_type": (1, "string"), "size": (2, "int64")},
        "DynamicResource": {"claim_name": (2, "string")},
    },
)
"""The API with more of its fields than the proxy declares."""


def answer(*containers: dict[str, Any], name: str = "train") -> Any:
    pod = {"name": name, "namespace": "default", "containers": list(containers)}
    return WHOLE["ListPodResourcesResponse"](pod_resources=[pod])


def added(before: Any, **annotations: Any) -> tuple[Any, list[str]]:
    texts = {
        f"default/{name}": text if isinstance(text, str) else json.dumps(text) for name, text in annotations.items()
    }
    found, faults = with_allocated_devices(before.SerializeToString(), texts)
    return WHOLE["ListPodResourcesResponse"].FromString(found), faults


def devices(container: Any) -> dict[str, list[str]]:
    return {each.resource_name: list(each.device_ids) for each in container.devices}


def test_the_first_container_has_all_devices_of_its_pod_by_resource() -> None:
    of_pod = {
        "rdma": [{"minor": 0, "id": "0000:1f:00.0"}],
        "gpu": [{"minor": 1, "id": "GPU-1"}, {"minor": 0, "id": "GPU-0"}],
        "fpga": [{"minor": 0, "id": "F-0"}],
    }
    found, faults = added(answer({"name": "main"}, {"name": "side"}), train=of_pod)
    first, second = found.pod_resources[0].containers
    assert devices(first) == {"koordinator.sh/rdma": ["0000:1f:00.0"], "nvidia.com/gpu": ["GPU-1", "GPU-0"]}
    assert [each.resource_name for each in first.devices] == ["koordinator.sh/rdma", "nvidia.com/gpu"]
    assert (devices(second), faults) == ({}, [])


def test_virtual_functions_are_named_by_their_addresses_in_place_of_the_card() -> None:
    card = {
        "minor": 0,
        "id": "0000:1f:00.0",
        "extension": {"vfs": [{"busID": "0000:1f:00.2"}, {"busID": "0000:1f:00.3"}]},
    }
    found, _ = added(answer({"name": "main"}), train={"rdma": [card]})
    assert devices(found.pod_resources[0].containers[0]) == {"koordinator.sh/rdma": ["0000:1f:00.2", "0000:1f:00.3"]}


def test_devices_of_the_kubelet_stay_with_fields_that_the_proxy_does_not_declare() -> None:
    container = {
        "name": "main",
        "cpu_ids": [3, 4],
        "memory": [{"memory_type": "memory", "size": 1024}],
        "dynamic_resources": [{"claim_name": "claim"}],
        "devices": [{"resource_name": "example.com/nic", "device_ids": ["n0"], "topology": {"nodes": [{"ID": 1}]}}],
    }
    before = answer(container)
    found, _ = added(before, train={"gpu": [{"minor": 0, "id": "GPU-0"}]})
    kept = found.pod_resources[0].containers[0]
    assert devices(kept) == {"example.com/nic": ["n0"], "nvidia.com/gpu": ["GPU-0"]}
    del kept.devices[1]
    assert found == before


def test_pods_that_are_not_ours_and_pods_without_containers_pass_through() -> None:
    for before in (answer({"name": "main"}, name="web"), answer()):
        assert added(before, train={"gpu": [{"minor": 0, "id": "GPU-0"}]}) == (before, [])


def test_a_device_without_an_id_is_left_out() -> None:
    before = answer({"name": "main"})
    assert added(before, train={"gpu": [{"minor": 0}]}) == (before, [])


def test_an_annotation_that_cannot_be_read_is_named_and_leaves_its_pod_as_it_is() -> None:
    before = answer({"name": "main"})
    found, faults = added(before, train="{")
    assert found == before
    (fault,) = faults
    assert fault.startswith("the devices of pod default/train cannot be read: ")
