"""The example of docs/devices.md, In the container and The pod-resources API: its annotation is read, and the changes are
compared."""

import json
import re
from pathlib import Path

from services.node_agent.pod_resources.allocated_devices import ListPodResourcesResponse, with_allocated_devices
from services.node_agent.runtime_hooks.container_hooks import CharDevice, ContainerContext, run_hooks
from services.node_agent.runtime_hooks.gpu_environment import NAME as GPU_HOOK
from services.node_agent.runtime_hooks.gpu_environment import gpu_environment
from services.node_agent.runtime_hooks.rdma_devices import NAME as RDMA_HOOK
from services.node_agent.runtime_hooks.rdma_devices import rdma_devices
from services.node_agent.settings import AgentSettings
from shared.kube.system_annotations import DEVICE_ALLOCATED

DOCUMENT = (Path(__file__).parents[4] / "docs" / "devices.md").read_text()


def blocks(heading: str) -> list[str]:
    """Returns the texts of a section's blocks."""
    section = DOCUMENT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```(?:json|text)\n(.*?)```", section, re.DOTALL)


def test_the_documented_container_gets_the_documented_variables_mounts_and_devices() -> None:
    annotation, expected = blocks("In the container")
    verbs = {"0000:1f:00.2": CharDevice("/dev/infiniband/uverbs7", 231, 199)}
    hooks = {
        GPU_HOOK: gpu_environment(AgentSettings().hami_core_library, monitor=False),
        RDMA_HOOK: rdma_devices(verbs.__getitem__, lambda: CharDevice("/dev/infiniband/rdma_cm", 10, 58)),
    }
    labels = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
    found = run_hooks(hooks, ContainerContext("default/p", "u", labels, {DEVICE_ALLOCATED: annotation}, "main"))
    assert not found.failures
    lines = [
        *(f"{name}={text}" for name, text in found.adjustment.env.items()),
        *(f"mount {mount.destination}" for mount in found.adjustment.mounts),
        *(f"device {device.path} {device.major}:{device.minor}" for device in found.adjustment.devices),
    ]
    assert lines == expected.splitlines()


def test_the_documented_devices_are_listed_for_the_pod() -> None:
    annotation, _ = blocks("In the container")
    (expected,) = blocks("The pod-resources API")
    pods = [{"name": "p", "namespace": "default", "containers": [{"name": "main"}]}]
    answer = ListPodResourcesResponse(pod_resources=pods).SerializeToString()
    changed, faults = with_allocated_devices(answer, {"default/p": json.dumps(json.loads(annotation))})
    found = ListPodResourcesResponse.FromString(changed).pod_resources[0].containers[0]
    assert not faults
    assert [f"{each.resource_name} {' '.join(each.device_ids)}" for each in found.devices] == expected.splitlines()
