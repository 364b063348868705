"""The example of docs/devices.md, In the container: its annotation is read, and the hooks' changes are compared."""

import re
from pathlib import Path

from services.node_agent.runtime_hooks.container_hooks import CharDevice, ContainerContext, run_hooks
from services.node_agent.runtime_hooks.gpu_environment import NAME as GPU_HOOK
from services.node_agent.runtime_hooks.gpu_environment import gpu_environment
from services.node_agent.runtime_hooks.rdma_devices import NAME as RDMA_HOOK
from services.node_agent.runtime_hooks.rdma_devices import rdma_devices
from services.node_agent.settings import AgentSettings
from shared.kube.system_annotations import DEVICE_ALLOCATED

DOCUMENT = (Path(__file__).parents[4] / "docs" / "devices.md").read_text()


def test_the_documented_container_gets_the_documented_variables_mounts_and_devices() -> None:
    section = DOCUMENT.partition("\n## In the container\n")[2].partition("\n## ")[0]
    annotation, expected = re.findall(r"```(?:json|text)\n(.*?)```", section, re.DOTALL)
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
