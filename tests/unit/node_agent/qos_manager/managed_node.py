"""A node made of files under the QoS manager: cgroups of both versions, a clock moved by hand, messages of ingest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.node_agent import feature_gates
from services.node_agent.cgroup import kubepods_layout
from services.node_agent.collectors.usage_sample_types import Usage, UsageSnapshot
from services.node_agent.qos_manager.host_paths import HostPaths
from services.node_agent.qos_manager.qos_manager import QosManager
from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.agents import node_pods, node_slo
from shared.agents.actions import AnyAction, ContainerHooks, HooksReported
from shared.agents.node_pods import NodePods
from shared.agents.node_slo import NodeSlo
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Pod, ResourceRequirements
from tests.support.pods import kept_pod
from tests.unit.node_agent.cgroup.cgroup_trees import Clock, tree_of

GIB = 2**30

CID = {"be": "b" * 64, "ls": "a" * 64}

BE, LS = "kubepods/besteffort/podbe", "kubepods/burstable/podls"

NODE = Node(
    metadata=Metadata(name="n"),
    status=NodeStatus(capacity={"cpu": "8", "memory": "16Gi"}, allocatable={"cpu": "8", "memory": "16Gi"}),
)


def pod(uid: str, qos: str, kube: str, resources: ResourceRequirements, **labels: str) -> Pod:
    labels = {f"koordinator.sh/{name.replace('_', '-')}": text for name, text in labels.items()}
    return kept_pod(
        uid,
        namespace="default",
        labels={"koordinator.sh/qosClass": qos} | labels,
        requests=resources.requests,
        limits=resources.limits,
        phase="Running",
        qos_class=kube,
        priority=5500 if qos == "BE" else 9500,
    )


BATCH = pod(
    "be",
    "BE",
    "BestEffort",
    ResourceRequirements(
        requests={"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "1Gi"},
        limits={"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "1Gi"},
    ),
    eviction_enabled="true",
)

WEB = pod("ls", "LS", "Burstable", ResourceRequirements(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "2"}))


class ManagedNode:
    """A node of 8 CPUs with one best-effort and one latency-sensitive pod.

    Attributes:
        actions: reported so far, without records of hooks.
        hooked: the newest record of hooks of each container.
    """

    def __init__(self, folder: Path, kind: int | str, gates: str = "") -> None:
        self.files = tree_of(kind, folder / "cgroup")
        self.clock = Clock()
        self.actions: list[AnyAction] = []
        self.hooked: dict[str, ContainerHooks] = {}
        for one in ("kubepods/besteffort", "kubepods/burstable", BE, LS, f"{BE}/{CID['be']}", f"{LS}/{CID['ls']}"):
            self.files.make(one)
        for cpu in range(8):
            topology = folder / f"sys/devices/system/cpu/cpu{cpu}/topology"
            topology.mkdir(parents=True)
            (topology / "core_id").write_text(f"{cpu % 4}\n")
            (topology / "physical_package_id").write_text("0\n")
        logs = folder / "logs"
        logs.mkdir()
        for uid, cid in CID.items():
            (logs / f"{uid}_default_c-{cid}.log").write_text("")
        self._slo = NodeSloInformer("n", folder / "state")
        self._pods = NodePodsInformer("n", folder / "state")
        self._seq = 0
        self._folder, self._gates = folder, gates
        self.qos_manager = self.new_qos_manager()
        self.pods(BATCH, WEB)

    def new_qos_manager(self) -> QosManager:
        folder = self._folder
        return QosManager(
            HostPaths(
                self.files.tree.root,
                "",
                folder / "sys",
                folder / "logs",
                kubelet=folder / "kubelet",
                terway=folder / "terway",
            ),
            self._slo,
            self._pods,
            feature_gates.parse(self._gates),
            report_action=self._report,
            clock_ns=self.clock,
            state_dir=folder / "state",
            interval_s=1,
        )

    def _report(self, action: AnyAction) -> None:
        if isinstance(action, HooksReported):
            self.hooked |= {each.container_id: each for each in action.containers}
        else:
            self.actions.append(action)

    def slo(self, **spec: Any) -> None:
        self._seq += 1
        assert self._slo.receive(node_slo.encode(NodeSlo("n", 1, self._seq, spec)))

    def pods(self, *found: Pod, topology: Mapping[str, str] | None = None) -> None:
        self._seq += 1
        message = NodePods("n", 1, self._seq, NODE, dict(topology) if topology is not None else None, found)
        assert self._pods.receive(node_pods.encode(message))

    def run_cycle(
        self, *, node: float, ls: float, be: float, memory: int = GIB, hosts: Mapping[str, Usage] | None = None
    ) -> None:
        """A second passes; usage in cores."""
        self.clock.now_ns += SECOND
        used = {"ls": Usage(int(ls * 10**6), GIB), "be": Usage(int(be * 10**6), GIB)}
        found = UsageSnapshot(self.clock.now_ns, Usage(int(node * 10**6), memory), None, used["be"], used, hosts or {})
        tree = self.files.tree
        hierarchy = kubepods_layout.Hierarchy(tree.version, tree.root, None)
        listed = tree.root / "cpu" if tree.version == 1 else tree.root
        kube = kubepods_layout.kubepods_layout(listed)
        assert kube is not None
        self.qos_manager.run_cycle(found, hierarchy, kube, kubepods_layout.pod_folders(listed, kube))

    def cpus(self, folder: str) -> str:
        """Returns the CPUs in effect: in v2 a written set is in effect at once."""
        return self.files.text("cpuset.cpus", folder)
