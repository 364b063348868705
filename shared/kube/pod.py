"""The pod as kept in events: the fields that scheduling, quota, overcommitment and node QoS read.

The names are the API's own, so that `koord events` shows the same as `kubectl get -o json`. Fields that no decision
depends on (environment, probes, commands, most volumes) are dropped.
"""

from msgspec import field

from shared.kube.meta import KubeStruct, Metadata
from shared.kube.selectors import LabelSelector, NodeSelectorTerm

Quantities = dict[str, str]

ENDED_PHASES = frozenset(("Succeeded", "Failed"))
"""Phases of a pod that never runs again."""


class ResourceRequirements(KubeStruct, frozen=True):
    """`resources` of a container or of a whole pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerPort(KubeStruct, frozen=True):
    """A port that a container takes on its host; ports without a host port are not kept."""

    host_port: int = 0
    container_port: int = 0
    protocol: str = "TCP"
    host_ip: str = field(default="", name="hostIP")


class Container(KubeStruct, frozen=True):
    """A container; an init container whose `restart_policy` is `Always` is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None


class Toleration(KubeStruct, frozen=True):
    """One toleration; an empty `effect` or an empty `key` with `Exists` matches all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PreferredNodeTerm(KubeStruct, frozen=True):
    """A node selector term with the weight (1..100) it adds to a matching node."""

    weight: int
    preference: NodeSelectorTerm


class RequiredNodeTerms(KubeStruct, frozen=True):
    """The terms of a required node affinity; a node must match one of them."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(KubeStruct, frozen=True):
    """The required and the preferred nodes of a pod."""

    required: RequiredNodeTerms | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNodeTerm, ...] = field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(KubeStruct, frozen=True):
    """Pods that a pod requires in (affinity) or outside of (anti-affinity) its domain of `topology_key`."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(KubeStruct, frozen=True):
    """A preferred pod affinity term with its weight, 1..100."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(KubeStruct, frozen=True):
    """`podAffinity` or `podAntiAffinity`: the shape is the same."""

    required: tuple[PodAffinityTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(KubeStruct, frozen=True):
    """The three kinds of affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(KubeStruct, frozen=True):
    """A constraint on the spread of a selector's pods over the domains of a topology key."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(KubeStruct, frozen=True):
    """A gate that keeps a pod from being scheduled until it is removed."""

    name: str


class ClaimSource(KubeStruct, frozen=True):
    """The claim a volume names."""

    claim_name: str
    read_only: bool = False


class EphemeralSource(KubeStruct, frozen=True):
    """A claim that is made for the pod, named `<pod>-<volume>`; its template is not kept."""


class GoogleDisk(KubeStruct, frozen=True):
    """A disk that may be written by one node at a time."""

    pd_name: str = ""
    read_only: bool = False


class AmazonDisk(KubeStruct, frozen=True):
    """A disk that may be attached to one node at a time."""

    volume_id: str = field(default="", name="volumeID")
    read_only: bool = False


class IscsiDisk(KubeStruct, frozen=True):
    """A disk by its qualified name."""

    iqn: str = ""
    read_only: bool = False


class RbdDisk(KubeStruct, frozen=True):
    """An image of a Ceph pool, reached through monitors."""

    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class LocalSource(KubeStruct, frozen=True):
    """An emptyDir or a hostPath: read from the API only, and kept as `PodSpec.local_storage`."""


class Volume(KubeStruct, frozen=True):
    """A volume that restricts where a pod may run: backed by a claim, or a disk that cannot be shared. Others are not kept."""

    name: str
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    gce_persistent_disk: GoogleDisk | None = None
    aws_elastic_block_store: AmazonDisk | None = None
    iscsi: IscsiDisk | None = None
    rbd: RbdDisk | None = None
    empty_dir: LocalSource | None = None
    host_path: LocalSource | None = None

    def is_local(self) -> bool:
        """Reports whether its content exists on the node alone."""
        return self.empty_dir is not None or self.host_path is not None

    def restricts(self) -> bool:
        """Reports whether events keep the volume."""
        return any((
            self.persistent_volume_claim, self.ephemeral is not None, self.gce_persistent_disk,
            self.aws_elastic_block_store, self.iscsi, self.rbd,
        ))  # fmt: skip


class PodSpec(KubeStruct, frozen=True):
    """The kept part of a pod's spec. Pods with equal specs are one template to the scheduler.

    Attributes:
        local_storage: the pod has a volume whose content exists on its node alone: an emptyDir or a hostPath. The API
            has no such field; the volumes themselves restrict no placement and are not kept.
    """

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Quantities | None = None
    resources: ResourceRequirements | None = None
    volumes: tuple[Volume, ...] = ()
    host_network: bool = False
    restart_policy: str = "Always"
    active_deadline_seconds: int | None = None
    local_storage: bool = False


class PodCondition(KubeStruct, frozen=True):
    """A condition of a pod; probe times are not kept, since no decision depends on them."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class WaitingReason(KubeStruct, frozen=True):
    """Why a container waits: read from the API only, and kept as `ContainerState.waiting`."""

    reason: str = ""


class TerminationResult(KubeStruct, frozen=True):
    """How a container ended: read from the API only, and kept as `ContainerState.terminated` and `.exit_code`."""

    reason: str = ""
    exit_code: int = 0


class ApiContainerState(KubeStruct, frozen=True):
    """The `state` of a container status: read from the API only."""

    waiting: WaitingReason | None = None
    terminated: TerminationResult | None = None


class ContainerStatus(KubeStruct, frozen=True):
    """The resources of a running container where they differ from its spec's requests, during a resize.

    Attributes:
        resources: the actual resources.
        allocated_resources: the resources that the node has allocated.
        restart_count, state: read from the API only, and kept as `PodStatus.container_states`.
    """

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None
    restart_count: int = 0
    state: ApiContainerState | None = None


INIT, EPHEMERAL = "init", "ephemeral"


class ContainerState(KubeStruct, frozen=True):
    """A container that waits, has ended, or has been restarted. Running ones that never were are not kept.

    Attributes:
        kind: empty for an ordinary container, else `INIT` or `EPHEMERAL`.
        waiting, terminated: the reason, as the kubelet or the runtime names it; empty in another state.
        exit_code: of a container that has ended; None in another state.
    """

    name: str = ""
    kind: str = ""
    restart_count: int = 0
    waiting: str = ""
    terminated: str = ""
    exit_code: int | None = None


class PodStatus(KubeStruct, frozen=True):
    """The kept part of a pod's status.

    Attributes:
        reason: why the pod is in its phase, as `Evicted`.
        container_states: states and restarts of containers in a short form. The API has no such field.
        ephemeral_container_statuses: read from the API only, and kept as `container_states`.
    """

    phase: str = ""
    reason: str = ""
    qos_class: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    container_states: tuple[ContainerState, ...] = ()


class Pod(KubeStruct, frozen=True):
    """A pod as kept in events."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def has_ended(self) -> bool:
        """The pod never runs again."""
        return self.status.phase in ENDED_PHASES

    def condition(self, type_: str) -> PodCondition | None:
        """Returns the condition of that type, if the pod has one."""
        return next((condition for condition in self.status.conditions if condition.type == type_), None)
