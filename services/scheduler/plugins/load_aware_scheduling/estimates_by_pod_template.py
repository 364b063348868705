"""Estimates and windows of pods, computed once for all pods of a template."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.plugins.load_aware_scheduling.args import LoadAwareArgs
from services.scheduler.plugins.load_aware_scheduling.estimate_window import Windows, windows_of
from services.scheduler.plugins.load_aware_scheduling.load_arrays import int64
from services.scheduler.plugins.load_aware_scheduling.node_metric_report import Vector
from services.scheduler.plugins.load_aware_scheduling.pod_estimate import estimate_pod
from shared.domain.pod_requests import PodAmounts
from shared.domain.priority import Priority, priority
from shared.kube.pod import Pod
from shared.kube.quantity import BadQuantity

_KEPT = 4096


class PodTemplate(NamedTuple):
    """Pods with equal requests.

    Attributes:
        estimate: expected usage, or None when all of it is 0, which is no estimate.
        incoming: int64[resources], the estimate to be added to nodes.
        is_prod: the pod's priority class, default included, is prod.
        windows: time for which the estimate counts, whatever is measured; None: none.
        unreported: int64[3, resources] each: the amounts that a pod that no report names adds to a node without a
            report, and to one with a report; None where they have to be computed singly.
    """

    estimate: Vector | None
    incoming: NDArray[np.int64]
    is_prod: bool
    windows: Windows | None
    unreported: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None


class PodTemplates:
    """Templates by pod: pods of a class share one object, which is the key. A full table is cleared."""

    def __init__(self, args: LoadAwareArgs, resources: tuple[str, ...]) -> None:
        self._args = args
        self._resources = resources
        self._known: dict[int, tuple[Pod, PodTemplate]] = {}

    def of(self, pod: Pod, pod_amounts: PodAmounts | None = None) -> PodTemplate:
        """The pod's template; `pod_amounts` if they have been read already."""
        known = self._known.get(id(pod))
        if known is not None:
            return known[1]
        if len(self._known) >= _KEPT:
            self._known.clear()
        template = self._compute(pod, pod_amounts)
        self._known[id(pod)] = pod, template  # the entry holds the pod, so that no other object gets its id
        return template

    def _compute(self, pod: Pod, pod_amounts: PodAmounts | None) -> PodTemplate:
        try:
            class_ = priority(pod)
            estimated, is_prod = estimate_pod(pod, self._args, class_, pod_amounts), class_ is Priority.PROD
        except BadQuantity:  # no API server admits such a pod
            estimated, is_prod = {}, False
        vector = tuple(estimated.get(name, 0) for name in self._resources)
        incoming = int64(vector)
        unreported = None
        if min(vector, default=0) >= 0:
            of_any = np.zeros((3, len(vector)), np.int64)
            of_any[:2] = incoming
            with_prod = of_any
            if is_prod:
                with_prod = of_any.copy()
                with_prod[2] = incoming
            unreported = of_any, with_prod
        windows = windows_of(pod, self._args)
        lasting = windows if max(windows) > 0 else None
        return PodTemplate(vector if any(vector) else None, incoming, is_prod, lasting, unreported)
