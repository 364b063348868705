"""The hooks of the node that containers get before they start, put together from gates and settings."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.devices.rdma_char_devices import RdmaCharDevices
from services.node_agent.nri.client import NriClient
from services.node_agent.nri.hooked_requests import Allocations, NodeCgroups
from services.node_agent.nri.plugin import NriPlugin
from services.node_agent.qos_manager.enforcers.hook_audit import RuntimeSide, StartOnly
from services.node_agent.qos_manager.qos_manager import QosManager
from services.node_agent.runtime_hooks import gpu_environment, rdma_devices, resctrl_class
from services.node_agent.runtime_hooks.cgroup_hooks import CGROUP_HOOKS, as_hook
from services.node_agent.runtime_hooks.container_hooks import ContainerContext, Hook, run_hooks
from services.node_agent.runtime_hooks.hook_stages import disabled_stages
from services.node_agent.runtime_hooks.hook_values import HookValues
from services.node_agent.runtime_hooks.late_hooks import late_reason
from services.node_agent.settings import AgentSettings
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.agents.node_pods import NodePods
from shared.kube.pod import Pod
from shared.kube.system_annotations import allocations_in


class NodeHooks(NamedTuple):
    """The hooks whose gates are on, by name, and the node's side of them."""

    hooks: Mapping[str, Hook]
    allocations: Allocations
    cgroups: NodeCgroups


def nri_client(
    settings: AgentSettings, gates: Mapping[str, bool], pods: NodePodsInformer, qos_manager: QosManager
) -> NriClient | None:
    """Returns the connection to the runtime, with the hooks whose gates are on; None where no event has any.

    Raises:
        BadStages: the settings disable a stage that does not exist.
    """
    hooks, allocations, cgroups = node_hooks(settings, gates, pods, qos_manager)
    plugin = NriPlugin(
        hooks,
        allocations,
        cgroups,
        records=qos_manager.hook_records,
        stop_at_failure=settings.hook_failure_policy == "Fail",
        disabled=disabled_stages(settings.disabled_hook_stages),
    )
    if not plugin.events:
        qos_manager.runtime_side = RuntimeSide(start_only=missing_without_runtime(hooks))
        return None
    client = NriClient(Path(settings.nri_socket), plugin, qos_manager.confirm_hooks)
    qos_manager.runtime_side = RuntimeSide(lambda: client.settled, missing_without_runtime(hooks))
    return client


def missing_without_runtime(hooks: Mapping[str, Hook]) -> StartOnly:
    """Returns the hooks among these that a container lacks which was created without the agent."""
    return partial(missing_at_start, {name: hooks[name] for name in hooks.keys() - CGROUP_HOOKS.keys()})


def node_hooks(
    settings: AgentSettings, gates: Mapping[str, bool], pods: NodePodsInformer, qos_manager: QosManager
) -> NodeHooks:
    """Returns the hooks whose gates are on."""
    rules = qos_manager.hook_rules.in_force

    def carries_identity() -> bool:
        return qos_manager.new_pods is not None and qos_manager.new_pods.identities_in_unified

    def write(uid: str, kube_qos: str, values: HookValues) -> bool:
        return qos_manager.new_pods is not None and qos_manager.new_pods.write(uid, kube_qos, values)

    def folder(uid: str, kube_qos: str) -> str:
        return "" if qos_manager.new_pods is None else qos_manager.new_pods.folder(uid, kube_qos)

    def write_identity() -> Callable[[str, str, str, int], None] | None:
        new_pods = qos_manager.new_pods
        return new_pods.write_identity if new_pods is not None and new_pods.identities_in_files else None

    hooks = {name: as_hook(name, rules, carries_identity) for name in CGROUP_HOOKS if gates[name]}
    if gates[gpu_environment.NAME]:
        hooks[gpu_environment.NAME] = gpu_environment.gpu_environment(
            settings.hami_core_library, monitor=gates["HamiCoreVGPUMonitor"]
        )
    if gates[rdma_devices.NAME]:
        cards = RdmaCharDevices(Path(settings.sys_root))
        hooks[rdma_devices.NAME] = rdma_devices.rdma_devices(cards.verbs, cards.connection_manager)
    if gates[resctrl_class.NAME]:
        hooks[resctrl_class.NAME] = resctrl_class.resctrl_class(qos_manager.resctrl.make)
    known = KnownPods(pods)
    cgroups = NodeCgroups(known.pod, rules, write, folder, write_identity, qos_manager.resctrl.remove)
    return NodeHooks(hooks, known.allocations, cgroups)


def missing_at_start(hooks: Mapping[str, Hook], each: PodCgroups, container: str) -> dict[str, str]:
    """Returns the hooks that a container would have needed when it was created, with the reason why it lacks them.

    Args:
        hooks: those that act at the creation alone.
    """
    meta = each.pod.metadata
    annotations = dict(meta.annotations or {})
    context = ContainerContext(meta.key, meta.uid, dict(meta.labels or {}), annotations, container, each.pod)
    results = run_hooks(hooks, context)
    return {name: late_reason(name) for name in (*results.applied, *(one.hook for one in results.failures))}


class KnownPods:
    """The node's pods that the agent has received, by uid."""

    def __init__(self, pods: NodePodsInformer) -> None:
        self._pods = pods
        self._of: NodePods | None = None
        self._by_uid: dict[str, Pod] = {}

    def pod(self, uid: str) -> Pod | None:
        """Returns a pod; None where no message had it yet."""
        found = self._pods.in_force
        if found is not self._of:
            self._of = found
            self._by_uid = {pod.metadata.uid: pod for pod in found.pods} if found is not None else {}
        return self._by_uid.get(uid)

    def allocations(self, uid: str) -> Mapping[str, str] | None:
        """Returns a pod's allocations; None where no message had the pod yet."""
        pod = self.pod(uid)
        return None if pod is None else allocations_in(pod.metadata.annotations)
