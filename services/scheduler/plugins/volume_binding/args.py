"""VolumeBindingArgs. Source: Kubernetes' kubescheduler.config.k8s.io/v1."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.errors import KoordError
from shared.kube.instants import SECOND

UNUSED_ARGS = ("shape",)
"""Arguments that are checked and have no effect: nodes are not scored by their storage, as with upstream's gate
VolumeCapacityPriority off."""

DEFAULT_TIMEOUT_S = 600


class BadVolumeBindingArgs(KoordError):
    """VolumeBindingArgs that cannot be used."""


class _Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    utilization: Annotated[int, msgspec.Meta(ge=0, le=100)]
    score: Annotated[int, msgspec.Meta(ge=0, le=10)]


class VolumeBindingArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The arguments.

    Attributes:
        bind_timeout_seconds: for how long a node is held for a pod whose volumes are being prepared.
    """

    bind_timeout_seconds: Annotated[int, msgspec.Meta(ge=0)] | None = None
    shape: tuple[_Point, ...] | None = None

    @property
    def timeout_ns(self) -> int:
        """`bindTimeoutSeconds` in nanoseconds."""
        return (DEFAULT_TIMEOUT_S if self.bind_timeout_seconds is None else self.bind_timeout_seconds) * SECOND


def read_volume_binding_args(raw: Mapping[str, Any], source: str) -> VolumeBindingArgs:
    """Reads the arguments.

    Raises:
        BadVolumeBindingArgs: a field is unknown, of the wrong type, or out of range.
    """
    return decode_args(raw, VolumeBindingArgs, source, BadVolumeBindingArgs)
