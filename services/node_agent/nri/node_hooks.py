"""The hooks of the node that containers get before they start, put together from gates and settings."""

from collections.abc import Mapping
from pathlib import Path

from services.node_agent.devices.rdma_char_devices import RdmaCharDevices
from services.node_agent.nri.client import NriClient
from services.node_agent.nri.plugin import NriPlugin
from services.node_agent.runtime_hooks import gpu_environment, rdma_devices
from services.node_agent.runtime_hooks.container_hooks import Hook
from services.node_agent.settings import AgentSettings
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.agents.node_pods import NodePods
from shared.kube.system_annotations import allocations_in


def nri_client(settings: AgentSettings, gates: Mapping[str, bool], pods: NodePodsInformer) -> NriClient:
    """Returns the connection to the runtime, with the hooks whose gates are on."""
    hooks: dict[str, Hook] = {}
    if gates[gpu_environment.NAME]:
        hooks[gpu_environment.NAME] = gpu_environment.gpu_environment(
            settings.hami_core_library, monitor=gates["HamiCoreVGPUMonitor"]
        )
    if gates[rdma_devices.NAME]:
        cards = RdmaCharDevices(Path(settings.sys_root))
        hooks[rdma_devices.NAME] = rdma_devices.rdma_devices(cards.verbs, cards.connection_manager)
    plugin = NriPlugin(hooks, PodAllocations(pods).of, stop_at_failure=settings.hook_failure_policy == "Fail")
    return NriClient(Path(settings.nri_socket), plugin)


class PodAllocations:
    """The allocations of the node's pods, by uid."""

    def __init__(self, pods: NodePodsInformer) -> None:
        self._pods = pods
        self._of: NodePods | None = None
        self._by_uid: dict[str, dict[str, str]] = {}

    def of(self, uid: str) -> Mapping[str, str] | None:
        """Returns a pod's allocations; None where no message had the pod yet."""
        found = self._pods.in_force
        if found is not self._of:
            self._of = found
            pods = found.pods if found is not None else ()
            self._by_uid = {pod.metadata.uid: allocations_in(pod.metadata.annotations) for pod in pods}
        return self._by_uid.get(uid)
