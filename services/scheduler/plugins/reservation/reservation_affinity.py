"""The requirements of a pod on Reservations: the annotations for affinity and exact matches, and the label that ignores
them.

Source: spec/scheduler-workloads.md 1.5; upstream pkg/scheduler/plugins/reservation/transformer.go.
"""

import msgspec

from services.scheduler.state.pod_equivalence_class import PodClass
from shared.kube.json_text import read_json
from shared.kube.meta import KubeStruct
from shared.kube.pod import Toleration
from shared.kube.selectors import NodeSelectorTerm
from shared.type_error_words import field_fault, unreadable_annotation

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT_MATCH = "scheduling.koordinator.sh/exact-match-reservation"
IGNORED = "scheduling.koordinator.sh/reservation-ignored"


class _Terms(KubeStruct, frozen=True):
    reservation_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class ReservationAffinity(KubeStruct, frozen=True):
    """The annotation; `name` takes precedence over everything else."""

    name: str = ""
    required: _Terms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    reservation_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] = ()


class _ExactMatch(KubeStruct, frozen=True):
    resource_names: tuple[str, ...] = ()


class Wish(msgspec.Struct, frozen=True):
    """The requirements of a class of pods on Reservations.

    Attributes:
        affinity: None without the annotation: any Reservation that names the pod may be used, and none has to be.
        exact: resources whose amounts have to be equal.
        is_ignored: its pods use reserved capacity without using a Reservation.
        problem: why an annotation cannot be read.
    """

    affinity: ReservationAffinity | None
    exact: tuple[str, ...] = ()
    is_ignored: bool = False
    problem: str = ""


def wish_of(pod_class: PodClass) -> Wish:
    """Reads the annotations and labels of a class."""
    annotations = pod_class.pod.metadata.annotations or {}
    ignored = pod_class.labels.get(IGNORED) == "true"
    affinity, name = None, AFFINITY
    try:
        if (text := annotations.get(AFFINITY)) is not None:
            affinity = read_json(text, ReservationAffinity) if text else ReservationAffinity()
        name = EXACT_MATCH
        exact = annotations.get(EXACT_MATCH)
        names = read_json(exact, _ExactMatch).resource_names if exact else ()
    except msgspec.MsgspecError as error:
        problem = unreadable_annotation(name, field_fault(error))
        return Wish(ReservationAffinity(), is_ignored=ignored, problem=problem)
    return Wish(affinity, names, ignored)
