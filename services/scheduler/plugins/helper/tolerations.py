"""Taints of nodes and tolerations of pods."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.nodes import NodeTable
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.tolerations import HARD, tolerates
from shared.kube.pod import Toleration


def all_tolerated(table: NodeTable, pod_class: PodClass) -> NDArray[np.bool_]:
    """bool[rows]: nodes without a hard taint that the pod does not tolerate."""
    tolerations = pod_class.pod.spec.tolerations
    by_set = np.array(
        [
            all(taint.effect not in HARD or any(tolerates(t, taint) for t in tolerations) for taint in taints)
            for taints in table.taints
        ]
    )
    tolerated: NDArray[np.bool_] = by_set[table.taint_set[: table.size]]
    return tolerated


def tolerations_of(pod_class: PodClass) -> tuple[Toleration, ...]:
    """The tolerations of a class: all that the taint plugins read of it."""
    return pod_class.pod.spec.tolerations
