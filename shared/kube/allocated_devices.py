"""The annotation `scheduling.koordinator.sh/device-allocated`: the devices of a pod, by type.

    {"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50",...},"id":"GPU-0"}],
     "rdma":[{"minor":1,"resources":{...},"id":"0000:1f:00.0","extension":{"vfs":[{"busID":"0000:1f:00.2"}]}}]}

Source: spec/scheduler-workloads.md 3.3; upstream apis/extension/device_share.go.
"""

import msgspec

from shared.kube.json_text import read_json


class AllocatedFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A virtual function of a network card."""

    minor: int = 0
    bus: str = msgspec.field(default="", name="busID")


class AllocationExtension(msgspec.Struct, frozen=True, omit_defaults=True):
    """Further parts of an allocation, beside amounts: virtual functions, a template of a shared GPU."""

    vfs: tuple[AllocatedFunction, ...] | None = None
    template: str = msgspec.field(default="", name="gpuSharedResourceTemplate")


class AnnotatedDevice(msgspec.Struct, frozen=True):
    """A device, or a part of one; `resources` are quantities, `id` is the device's UUID or PCI address."""

    minor: int = 0
    resources: dict[str, str] | None = None
    id: str | msgspec.UnsetType = msgspec.UNSET
    extension: AllocationExtension | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def uuid(self) -> str:
        """The device's `id`; empty without one."""
        return self.id if isinstance(self.id, str) else ""

    @property
    def functions(self) -> tuple[AllocatedFunction, ...]:
        """The virtual functions; none where the pod has the device itself."""
        return (self.extension.vfs or ()) if isinstance(self.extension, AllocationExtension) else ()

    @property
    def template(self) -> str:
        """The template of a shared GPU; empty without one."""
        return self.extension.template if isinstance(self.extension, AllocationExtension) else ""


def read_allocated_devices(text: str) -> dict[str, tuple[AnnotatedDevice, ...]]:
    """Returns the devices by type, in the order of the annotation. A missing minor is 0, as upstream reads it.

    Raises:
        msgspec.MsgspecError: the text is no such annotation.
    """
    found: dict[str, tuple[AnnotatedDevice, ...]] = read_json(text, dict[str, tuple[AnnotatedDevice, ...]])
    return found
