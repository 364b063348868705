"""Volumes, claims, storage classes and CSI drivers, with the fields that placements depend on."""

from msgspec import field

from shared.kube.meta import KubeStruct, Metadata
from shared.kube.pod import Quantities, RequiredNodeTerms, ResourceRequirements
from shared.kube.selectors import LabelSelector

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node of the pod that waits for it. Written by the scheduler, read by the provisioner."""


class ClaimSpec(KubeStruct, frozen=True):
    """`spec` of a PersistentVolumeClaim."""

    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements | None = None
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str = ""


class ClaimStatus(KubeStruct, frozen=True):
    """`status` of a PersistentVolumeClaim."""

    phase: str = ""


class Claim(KubeStruct, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def is_bound(self) -> bool:
        """Reports whether the claim and its volume are bound to each other."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in (self.metadata.annotations or ())


class ClaimReference(KubeStruct, frozen=True):
    """The claim of a volume."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(KubeStruct, frozen=True):
    """The nodes from which a volume is accessible."""

    required: RequiredNodeTerms | None = None


class CsiSource(KubeStruct, frozen=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(KubeStruct, frozen=True):
    """`spec` of a PersistentVolume."""

    capacity: Quantities | None = None
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None


class PersistentVolumeStatus(KubeStruct, frozen=True):
    """`status` of a PersistentVolume."""

    phase: str = ""


class PersistentVolume(KubeStruct, frozen=True):
    """A PersistentVolume."""

    metadata: Metadata
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologyExpression(KubeStruct, frozen=True):
    """A label of nodes and the values that are allowed."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(KubeStruct, frozen=True):
    """Expressions that must all hold."""

    match_label_expressions: tuple[TopologyExpression, ...] = ()


class StorageClass(KubeStruct, frozen=True):
    """A StorageClass."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] = ()

    @property
    def waits(self) -> bool:
        """Reports whether a volume is provisioned or bound only after its pod has a node."""
        return self.volume_binding_mode == "WaitForFirstConsumer"


class DriverAllocatable(KubeStruct, frozen=True):
    """The number of volumes of a driver that a node can attach."""

    count: int | None = None


class NodeDriver(KubeStruct, frozen=True):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: DriverAllocatable | None = None


class CsiNodeSpec(KubeStruct, frozen=True):
    """`spec` of a CSINode."""

    drivers: tuple[NodeDriver, ...] = ()


class CsiNode(KubeStruct, frozen=True):
    """A CSINode; its name is the node's."""

    metadata: Metadata
    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(KubeStruct, frozen=True):
    """`spec` of a CSIDriver."""

    storage_capacity: bool = False


class CsiDriver(KubeStruct, frozen=True):
    """A CSIDriver."""

    metadata: Metadata
    spec: CsiDriverSpec = CsiDriverSpec()


class StorageCapacity(KubeStruct, frozen=True):
    """A CSIStorageCapacity: the remaining capacity of a class for the selected nodes."""

    metadata: Metadata
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | None = None
    maximum_volume_size: str | None = field(default=None, name="maximumVolumeSize")
