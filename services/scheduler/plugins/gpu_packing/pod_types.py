"""Types of pods: the amounts by which pods that use GPUs are alike."""

from typing import NamedTuple

from services.scheduler.plugins.device_share.pod_device_requests import read_device_requests
from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.device_requests import CORE, MEMORY, RATIO

WHOLE = 100
"""Percent of one GPU."""


class PodType(NamedTuple):
    """The amounts by which pods count: GPUs with a share of each, in percent."""

    cpu_milli: int
    memory: int
    gpus: int
    share: int


def type_of(pod_class: PodClass, key: object, card_memory: int = 0) -> PodType:
    """Returns the type of a class of pods, cached in it under a key.

    Args:
        card_memory: of one GPU, in bytes, by which memory alone is a share; such pods count without GPUs where it is 0.
    """
    found: PodType | None = pod_class.cached.get(key)
    if found is None:
        requests = read_device_requests(pod_class.pod, pod_class.request)
        gpu = None if requests is None or isinstance(requests, Rejection) else requests.gpu
        share = 0 if gpu is None else gpu.each.get(RATIO, 0) or gpu.each.get(CORE, 0)
        if gpu is not None and not share and card_memory:
            share = -(-gpu.each.get(MEMORY, 0) * WHOLE // card_memory)
        share = min(share, WHOLE)
        cpu, memory = (pod_class.request.get(name, 0) for name in ("cpu", "memory"))
        found = PodType(cpu, memory, gpu.number if gpu is not None and share else 0, share)
        pod_class.cached[key] = found
    return found
