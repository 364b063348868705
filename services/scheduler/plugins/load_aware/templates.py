"""What load-awareness needs of a pod, worked out once for all pods of a template."""

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from services.scheduler.plugins.load_aware.args import LoadAwareArgs
from services.scheduler.plugins.load_aware.assignment import (
    AFTER_INITIALIZED_ANNOTATION,
    AFTER_SCHEDULED_ANNOTATION,
    Windows,
    windows_of,
)
from services.scheduler.plugins.load_aware.estimate import FACTORS_ANNOTATION, estimate_pod
from services.scheduler.plugins.load_aware.fleet import int64
from services.scheduler.plugins.load_aware.report import Vector
from shared.domain import priority, qos
from shared.kube.pod import Pod
from shared.kube.quantity import BadQuantity

_KEPT = 4096
_ANNOTATIONS = (FACTORS_ANNOTATION, AFTER_SCHEDULED_ANNOTATION, AFTER_INITIALIZED_ANNOTATION)


class Template(NamedTuple):
    """Pods that ask for the same.

    Attributes:
        estimate: expected usage, or None when all of it is 0, which is no estimate.
        incoming: int64[resources], the estimate to be added to nodes.
        is_prod: whether the pod's class, default included, is prod.
        windows: how long the estimate counts whatever is measured.
        unseen: int64[3, resources] each: what a pod that no report names adds to a node without a report, and to one with; None where
            that takes a closer look.
    """

    estimate: Vector | None
    incoming: NDArray[np.int64]
    is_prod: bool
    windows: Windows
    unseen: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None


class Templates:
    """Templates by what they are computed from; forgets all of them rather than growing without end."""

    def __init__(self, args: LoadAwareArgs, resources: tuple[str, ...]) -> None:
        self._args = args
        self._resources = resources
        self._encode = msgspec.msgpack.Encoder().encode
        self._known: dict[tuple[object, ...], Template] = {}
        self._last: tuple[Pod, Template] | None = None

    def of(self, pod: Pod) -> Template:
        """The pod's template."""
        if self._last is not None and self._last[0] is pod:
            return self._last[1]
        key = self._key(pod)
        template = self._known.get(key)
        if template is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            template = self._known[key] = self._compute(pod)
        self._last = (pod, template)
        return template

    def _key(self, pod: Pod) -> tuple[object, ...]:
        spec, labels = pod.spec, pod.metadata.labels or {}
        annotations = pod.metadata.annotations if self._args.allow_customize_estimation else None
        return (
            self._encode((spec.containers, spec.init_containers, spec.overhead, spec.resources)),
            spec.priority,
            labels.get(priority.LABEL),
            labels.get(qos.LABEL),
            pod.status.qos_class,
            tuple(map(annotations.get, _ANNOTATIONS)) if annotations else None,
        )

    def _compute(self, pod: Pod) -> Template:
        try:
            estimated = estimate_pod(pod, self._args)
            is_prod = priority.priority(pod) is priority.Priority.PROD
        except BadQuantity:  # no API server lets such a pod in
            estimated, is_prod = {}, False
        vector = tuple(estimated.get(name, 0) for name in self._resources)
        incoming = int64(vector)
        unseen = None
        if min(vector, default=0) >= 0:
            zero = (0,) * len(vector)
            unseen = (int64((vector, vector, zero)), int64((vector, vector, vector if is_prod else zero)))
        return Template(vector if any(vector) else None, incoming, is_prod, windows_of(pod, self._args), unseen)
