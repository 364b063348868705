"""Arguments of GpuFragmentation and GpuPacking: the workload whose pods are expected."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.errors import KoordError
from shared.kube.device import GPU_MODEL

MAX_TYPES = 64
"""Number of types of pods that count, the most frequent ones."""

TYPICAL_PERCENT, MAX_TYPICAL_TYPES = 95, 256
"""For GpuFragmentation: the share of pods whose types count, and their number."""


class BadPackingArgs(KoordError):
    """Arguments that cannot be used; gives the path, the value and what is allowed."""


class ExpectedPods(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Pods of one type.

    Attributes:
        cpu_milli, memory: of each; memory in bytes.
        gpus, share: number of GPUs, and the percent of each.
        models: of the GPUs; empty for any.
        pods: their number, or any other weight.
    """

    cpu_milli: int = 0
    memory: int = 0
    gpus: int = 0
    share: int = 100
    models: tuple[str, ...] = ()
    pods: int = 1


class PackingArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The arguments.

    Attributes:
        workload: the pods that are expected; empty: as those that are assigned to nodes.
        model_label: label of nodes with the model of their GPUs.
    """

    workload: tuple[ExpectedPods, ...] = ()
    model_label: str = GPU_MODEL


def read_packing_args(raw: Mapping[str, Any], source: str = "GpuPackingArgs") -> PackingArgs:
    """Decodes and checks the arguments in a scheduler configuration.

    Raises:
        BadPackingArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, PackingArgs, source, BadPackingArgs)
    for number, each in enumerate(args.workload):
        path = f"{source}: workload[{number}]"
        if min(each.cpu_milli, each.memory, each.gpus) < 0 or each.pods < 1:
            raise BadPackingArgs(f"{path} has an amount below 0, or no pods; give whole numbers")
        if not 1 <= each.share <= 100:
            raise BadPackingArgs(f"{path}.share is {each.share}; give a percentage from 1 to 100")
    if len({model for each in args.workload for model in each.models}) > 60:
        raise BadPackingArgs(f"{source}: the workload names more than 60 models of GPUs; leave the rarest out")
    return args
