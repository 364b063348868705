"""DeviceShareArgs. Source: spec/scheduler-workloads.md 3.4, 3.6; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.device_share.device_scores import LEAST, MOST, ScoringStrategy
from services.scheduler.plugins.device_share.filter_score_reserve_on_one_node import DeviceSettings
from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.domain.device_requests import FPGA_SHARE, MEMORY, NPU_CORE, RATIO, RDMA_SHARE
from shared.errors import KoordError
from shared.kube.gpu_templates import CONFIG_MAP

UNUSED_ARGS = ("allocator",)
_NAMESPACE, _, _NAME = CONFIG_MAP.partition("/")


class BadDeviceArgs(KoordError):
    """Arguments that cannot be used; gives the path, the value and what is allowed."""


class Weighted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A resource and the weight of its part in the score, 1..100."""

    name: str
    weight: int = 1


class Strategy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scoring strategy and its resources."""

    type: str = LEAST
    resources: tuple[Weighted, ...] = tuple(Weighted(name) for name in (RATIO, MEMORY, RDMA_SHARE, FPGA_SHARE))


class Templates(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The ConfigMap with the templates of shared GPUs, and the resources of which only amounts of a template are given."""

    config_map_namespace: str = _NAMESPACE
    config_map_name: str = _NAME
    matched_resources: tuple[str, ...] = (NPU_CORE,)


class Unshared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """GPUs that are given as wholes alone, by the labels of their node."""

    vendor: str
    model: str


class DeviceArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plugin's arguments by their upstream JSON names."""

    allocator: str = ""
    scoring: Strategy = msgspec.field(default=Strategy(), name="scoringStrategy")
    is_unaligned: bool = msgspec.field(default=False, name="disableDeviceNUMATopologyAlignment")
    templates: Templates = msgspec.field(default=Templates(), name="gpuSharedResourceTemplatesConfig")
    unshared: tuple[Unshared, ...] = msgspec.field(default=(), name="gpuShareUnsupportedModels")

    @property
    def settings(self) -> DeviceSettings:
        """The arguments as plain data."""
        weights = tuple((resource.name, resource.weight) for resource in self.scoring.resources)
        return DeviceSettings(
            ScoringStrategy(self.scoring.type == MOST, weights),
            frozenset((each.vendor, each.model) for each in self.unshared),
            not self.is_unaligned,
            frozenset(self.templates.matched_resources),
        )


def read_device_args(raw: Mapping[str, Any], source: str = "DeviceShareArgs") -> DeviceArgs:
    """Decodes and checks the arguments in a scheduler configuration.

    Raises:
        BadDeviceArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, DeviceArgs, source, BadDeviceArgs)
    if args.scoring.type not in (LEAST, MOST):
        raise BadDeviceArgs(f"{source}: scoringStrategy.type is {args.scoring.type!r}; give {LEAST} or {MOST}")
    for number, resource in enumerate(args.scoring.resources):
        if not 1 <= resource.weight <= 100:
            path = f"scoringStrategy.resources[{number}].weight"
            raise BadDeviceArgs(f"{source}: {path} is {resource.weight}; give a whole number from 1 to 100")
    given = f"{args.templates.config_map_namespace}/{args.templates.config_map_name}"
    if given != CONFIG_MAP:
        raise BadDeviceArgs(
            f"{source}: gpuSharedResourceTemplatesConfig names ConfigMap {given}; templates are read from {CONFIG_MAP}"
            " alone: put them there, and leave the name out"
        )
    return args
