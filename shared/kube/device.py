"""The Device object: the devices of a node, by type and minor number. Its name is the node's.

Source: spec/api.md 1.5; upstream apis/scheduling/v1alpha1/device_types.go, apis/extension/device_share.go.
"""

from msgspec import field

from shared.kube.meta import KubeStruct, Metadata

GPU, RDMA, FPGA = "gpu", "rdma", "fpga"
DEVICE_TYPES = (GPU, RDMA, FPGA)

GPU_VENDOR = "node.koordinator.sh/gpu-vendor"
GPU_MODEL = "node.koordinator.sh/gpu-model"
GPU_DRIVER = "node.koordinator.sh/gpu-driver-version"
PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
SECONDARY_WELL_PLANNED = "node.koordinator.sh/secondary-device-well-planned"
PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
REPORTED_LABELS = frozenset((GPU_VENDOR, GPU_MODEL, GPU_DRIVER, PARTITION_POLICY, SECONDARY_WELL_PLANNED))
"""Labels of a Device that its node's agent reports; device discovery sets no other."""
ISOLATION_PROVIDER = "koordinator.sh/gpu-isolation-provider"
HAMI_CORE = "HAMi-core"
"""The isolation that limits what containers use of a shared GPU."""
GPU_MINORS = "scheduling.koordinator.sh/gpu-minors"
"""Annotation of a pod for device plugins of vendors: `0,1`."""
DSMLU_PROFILE = "CAMBRICON_DSMLU_PROFILE"
"""Annotation of a pod for Cambricon's plugin: `<minor>_<core>_<memory in 256 MiB>`."""
METAX_DEVICES = "metax-tech.com/gpu-devices-allocated"
"""Annotation of a pod for MetaX' plugin: its cards as JSON."""
HAMI_NODE = "hami.io/vgpu-node"
"""Label of a pod isolated by HAMi-core, by which HAMi finds those of a node: the node's name."""


class DeviceTopology(KubeStruct, frozen=True):
    """The place of a device in its node; NUMA node -1: unknown."""

    numa: int = field(default=0, name="nodeID")
    pcie: str = field(default="", name="pcieID")


class VirtualFunction(KubeStruct, frozen=True):
    """A part of a network card that a pod gets as a card of its own."""

    minor: int = 0
    bus: str = field(default="", name="busID")


class VirtualFunctions(KubeStruct, frozen=True):
    """Virtual functions with the same labels."""

    labels: dict[str, str] | None = None
    vfs: tuple[VirtualFunction, ...] = ()


class DeviceInfo(KubeStruct, frozen=True):
    """One device; `resources` are quantities, `id` is its UUID."""

    type: str = ""
    id: str = ""
    minor: int | None = None
    health: bool = False
    labels: dict[str, str] | None = None
    resources: dict[str, str] | None = None
    topology: DeviceTopology | None = None
    vf_groups: tuple[VirtualFunctions, ...] = ()


class DeviceSpec(KubeStruct, frozen=True):
    """The devices."""

    devices: tuple[DeviceInfo, ...] = ()


class Device(KubeStruct, frozen=True):
    """The kept part of a Device."""

    metadata: Metadata
    spec: DeviceSpec = DeviceSpec()
