"""Reservation objects, and the reserve pods that stand for them in the scheduler.

Source: spec/scheduler-workloads.md 1.1, 1.2; upstream apis/scheduling/v1alpha1/reservation_types.go,
pkg/util/reservation.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from shared.domain.cpu_set import BadCpuList, parse_cpus
from shared.domain.node_selection import problem_of as problem_of_selector
from shared.domain.pod_requests import pod_requests
from shared.kube.amounts_as_text import UnreadableObject, read_object
from shared.kube.instants import BadTime, duration_ns, instant_ns
from shared.kube.json_text import read_json
from shared.kube.meta import KubeStruct, Metadata, OwnerReference
from shared.kube.node import Taint
from shared.kube.pod import Container, Pod, PodSpec, PodStatus, Quantities, ResourceRequirements
from shared.kube.quantity import NANO, BadQuantity, nanos
from shared.kube.selectors import LabelSelector
from shared.type_error_words import field_fault, unreadable_annotation

ORDER = "scheduling.koordinator.sh/reservation-order"
RESTRICTED_OPTIONS = "scheduling.koordinator.sh/reservation-restricted-options"
RESIZE = "scheduling.koordinator.sh/reservation-resize-allocatable"
INNER_RESERVED = "node.koordinator.sh/reservation"
PRE_ALLOCATION_REQUIRED = "scheduling.koordinator.sh/pre-allocation-required"
PRE_ALLOCATABLE = "pod.koordinator.sh/is-pre-allocatable"
PRE_ALLOCATABLE_PRIORITY = "pod.koordinator.sh/pre-allocatable-priority"
"""Label and annotation of pods that Reservations in cluster mode take over, the highest priority first."""
PRIORITY = "koordinator.sh/priority"
RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"

RESERVATION_PLACEMENT = "internal.koordstream/reservation-placement"
"""Annotation of reserve pods alone, removed from any other pod: `POLICY/NODE`, the allocate policy and the node to
which the template pins it; both may be empty."""

PRE_ALLOCATION = "internal.koordstream/pre-allocation"
"""Annotation of reserve pods alone: the uid of a Reservation that takes over running pods."""

PRE_ALLOCATION_FIELDS = "reservation-allocated"
"""Field group of a running pod: the annotation that names the Reservation that takes it over."""

PRE_ALLOCATED = "internal.koordstream/pre-allocated"
"""Annotation of the placement of a Reservation: the pods that it takes over, as JSON [[uid, `namespace/name`], ...]."""

DEFAULT, ALIGNED, RESTRICTED = "", "Aligned", "Restricted"
CLUSTER_MODE = "Cluster"
PENDING, AVAILABLE, SUCCEEDED, FAILED = "Pending", "Available", "Succeeded", "Failed"
WAITING = "Waiting"
"""A phase of the API that nothing sets: with a node, such a Reservation is neither placed nor holds capacity."""
MAX_PRIORITY = 2**31 - 1


class ObjectOwner(KubeStruct, frozen=True):
    """`object` of an owner; fields that are empty match anything."""

    api_version: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class ControllerOwner(OwnerReference, frozen=True):
    """`controller` of an owner."""

    namespace: str = ""


class Owner(KubeStruct, frozen=True):
    """One of the owners; everything that is set must match."""

    object: ObjectOwner | None = None
    controller: ControllerOwner | None = None
    label_selector: LabelSelector | None = None


class PodTemplate(KubeStruct, frozen=True):
    """The template of the reserve pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class PreAllocationPolicy(KubeStruct, frozen=True):
    """Which running pods a reservation takes over, and whether several of them."""

    mode: str = ""
    enable_multiple: bool = False


class ReservationSpec(KubeStruct, frozen=True):
    """The kept part of the spec."""

    template: PodTemplate | None = None
    owners: tuple[Owner, ...] = ()
    ttl: str | None = None
    expires: str | None = None
    pre_allocation: bool = False
    pre_allocation_policy: PreAllocationPolicy | None = None
    allocate_once: bool | None = None
    allocate_policy: str = DEFAULT
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ReservationCondition(KubeStruct, frozen=True):
    """A condition of type `Scheduled` or `Ready`."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class CurrentOwner(KubeStruct, frozen=True):
    """A pod that uses the reservation."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class ReservationStatus(KubeStruct, frozen=True):
    """The status."""

    phase: str = ""
    conditions: tuple[ReservationCondition, ...] = ()
    current_owners: tuple[CurrentOwner, ...] = ()
    node_name: str = ""
    allocatable: Quantities | None = None
    allocated: Quantities | None = None


class Reservation(KubeStruct, frozen=True):
    """A Reservation as kept in events."""

    metadata: Metadata
    spec: ReservationSpec = ReservationSpec()
    status: ReservationStatus = ReservationStatus()

    @property
    def allocates_once(self) -> bool:
        """Returns True where the first owner consumes it."""
        return self.spec.allocate_once is not False

    @property
    def policy(self) -> str:
        """Returns the allocate policy; empty for the default one, which the text `Default` names too."""
        return self.spec.allocate_policy if self.spec.allocate_policy != "Default" else DEFAULT

    @property
    def pre_allocates(self) -> bool:
        """Returns True where it may take over running pods."""
        return self.spec.pre_allocation

    @property
    def requires_pre_allocation(self) -> bool:
        """Returns True where it is placed only where it takes over a pod."""
        return self.pre_allocates and (self.metadata.labels or {}).get(PRE_ALLOCATION_REQUIRED) == "true"

    @property
    def is_cluster_mode(self) -> bool:
        """Returns True where it takes over pods by a label of theirs, not by its owners."""
        policy = self.spec.pre_allocation_policy
        return policy is not None and policy.mode == CLUSTER_MODE

    @property
    def takes_several(self) -> bool:
        """Returns True where it takes over several pods."""
        policy = self.spec.pre_allocation_policy
        return policy is not None and policy.enable_multiple

    @property
    def is_ended(self) -> bool:
        """Returns True for a phase that never changes again."""
        return self.status.phase in (SUCCEEDED, FAILED)

    @property
    def is_available(self) -> bool:
        """Returns True where pods may use it."""
        return self.status.phase == AVAILABLE and bool(self.status.node_name)


class UnreadableReservation(UnreadableObject):
    """An object that does not match the type of a Reservation."""


def read_reservation(body: Mapping[str, Any]) -> Reservation:
    """Reads an object.

    Raises:
        UnreadableReservation: a field has another type.
    """
    try:
        return read_object(body, Reservation)
    except msgspec.ValidationError as error:
        raise UnreadableReservation(field_fault(error)) from error


def problem_of(reservation: Reservation) -> str:
    """Returns why a reservation cannot be placed, and what to change; empty for a valid one."""
    return problem_of_amounts(reservation) or _problem_of_life(reservation) or problem_of_use(reservation)


def problem_of_amounts(reservation: Reservation) -> str:
    """Returns why the amounts that a reservation holds cannot be read, and what to change; empty where they can."""
    spec = reservation.spec
    if spec.template is None:
        return "spec.template is missing: give a pod template with the requests to hold"
    try:
        pod_requests(Pod(metadata=Metadata(), spec=spec.template.spec))
        for name, text in (reservation.status.allocatable or {}).items():
            _check(name, text)
        if reservation.status.allocatable is None:
            for text in resized(reservation).values():
                nanos(text)
    except BadQuantity as error:
        return str(error)
    except msgspec.MsgspecError as error:
        return unreadable_annotation(RESIZE, field_fault(error))
    return ""


def _problem_of_life(reservation: Reservation) -> str:
    spec = reservation.spec
    if not spec.owners:
        return "spec.owners is empty: name the pods that may use it by object, controller or labelSelector"
    if spec.ttl is None and spec.expires is None:
        return "neither spec.ttl nor spec.expires is set: give one of them"
    if spec.allocate_policy not in (DEFAULT, "Default", ALIGNED, RESTRICTED):
        return f"spec.allocatePolicy is {spec.allocate_policy!r}: give Aligned or Restricted"
    if spec.pre_allocation and spec.allocate_policy != RESTRICTED:
        return "spec.preAllocation requires spec.allocatePolicy Restricted: set it"
    mode = "" if spec.pre_allocation_policy is None else spec.pre_allocation_policy.mode
    if mode not in ("", "Default", CLUSTER_MODE):
        return f"spec.preAllocationPolicy.mode is {mode!r}: give Default or Cluster"
    try:
        if spec.ttl is not None:
            duration_ns(spec.ttl)
        if spec.expires is not None:
            instant_ns(spec.expires)
    except BadTime as error:
        return str(error)
    return ""


def problem_of_use(reservation: Reservation) -> str:
    """Returns why no pod may use a reservation, and what to change; empty where pods may."""
    for number, owner in enumerate(reservation.spec.owners):
        if owner.label_selector is not None and (problem := problem_of_selector(owner.label_selector)):
            return f"spec.owners[{number}].labelSelector: {problem}"
    checks: tuple[tuple[str, Callable[[Reservation], object]], ...] = (
        (RESTRICTED_OPTIONS, restricted_resources),
        (INNER_RESERVED, _inner_amounts),
    )
    for name, check in checks:
        try:
            check(reservation)
        except BadQuantity as error:
            return f"annotation {name}: {error}"
        except msgspec.MsgspecError as error:
            return unreadable_annotation(name, field_fault(error))
    return ""


def _inner_amounts(reservation: Reservation) -> list[int]:
    return [nanos(text) for text in inner_reserved(reservation).values()]


def _check(name: str, text: str) -> None:
    if nanos(text) < 0:
        raise BadQuantity(f"status.allocatable.{name} is {text}, which is negative")


class _Options(msgspec.Struct, frozen=True):
    resources: tuple[str, ...] = ()


def expires_ns(reservation: Reservation) -> int | None:
    """Returns the earlier of the times at which a reservation expires; None where it never does.

    Raises:
        BadTime: one of them cannot be read.
    """
    spec, created = reservation.spec, reservation.metadata.creation_timestamp
    ttl_ns = None if spec.ttl is None else duration_ns(spec.ttl)
    if ttl_ns == 0:
        return None
    ends = [] if spec.expires is None else [instant_ns(spec.expires)]
    if ttl_ns is not None and created is not None:
        ends.append(instant_ns(created) + ttl_ns)
    return min(ends, default=None)


class _Amounts(msgspec.Struct, frozen=True):
    resources: Quantities | None = None


class _Inner(_Amounts, frozen=True):
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")


def restricted_resources(reservation: Reservation) -> tuple[str, ...]:
    """Returns the resources that the annotation restricts; empty without it."""
    text = (reservation.metadata.annotations or {}).get(RESTRICTED_OPTIONS)
    return read_json(text, _Options).resources if text else ()


def inner_reserved(reservation: Reservation) -> Quantities:
    """Returns amounts of the reservation that no owner may use; CPUs by number take precedence over an amount of cpu.

    Source: spec/scheduler-workloads.md 1.13.
    """
    text = (reservation.metadata.annotations or {}).get(INNER_RESERVED)
    if not text:
        return {}
    found = read_json(text, _Inner)
    amounts = dict(found.resources or {})
    if found.reserved_cpus:
        with suppress(BadCpuList):  # the amount counts then
            amounts["cpu"] = str(len(parse_cpus(found.reserved_cpus)))
    return amounts


def resized(reservation: Reservation) -> Quantities:
    """Returns amounts that replace the template's when it becomes available."""
    text = (reservation.metadata.annotations or {}).get(RESIZE)
    return (read_json(text, _Amounts).resources or {}) if text else {}


def with_resized(reservation: Reservation, amounts: Quantities) -> Reservation:
    """Returns the reservation with these amounts in place of the template's and the annotation's."""
    text = msgspec.json.encode(_Amounts(resources=resized(reservation) | amounts)).decode()
    annotations = {**(reservation.metadata.annotations or {}), RESIZE: text}
    return replace(reservation, metadata=replace(reservation.metadata, annotations=annotations))


def requests_text(reservation: Reservation) -> Quantities:
    """Returns the amounts to hold as quantities: the template's requests, overwritten by the resize annotation."""
    template = reservation.spec.template or PodTemplate()
    total = pod_requests(Pod(metadata=Metadata(), spec=template.spec))
    return amounts_text(total) | resized(reservation)


def amounts_text(amounts: Mapping[str, int]) -> Quantities:
    """Returns amounts as quantities.

    Args:
        amounts: in nanos.
    """
    return {name: _text(name, size) for name, size in sorted(amounts.items())}


def _text(name: str, size: int) -> str:
    if size % NANO == 0:
        return str(size // NANO)
    return f"{-(-size // (NANO // 1000))}m" if name == "cpu" or size % (NANO // 1000) == 0 else str(-(-size // NANO))


def reserve_pod(reservation: Reservation) -> Pod:
    """Returns the pod that stands for a valid reservation: in the queue while it is pending, on its node while it is
    available. Source: spec/scheduler-workloads.md 1.2.
    """
    template, metadata, status = reservation.spec.template or PodTemplate(), reservation.metadata, reservation.status
    spec = template.spec
    labels = {**(template.metadata.labels or {}), **(metadata.labels or {})}
    annotations = {
        **(template.metadata.annotations or {}),
        **(metadata.annotations or {}),
        RESERVE_POD: "true",
        RESERVATION_PLACEMENT: f"{reservation.policy}/{spec.node_name}",
    }
    if reservation.pre_allocates:
        annotations[PRE_ALLOCATION] = metadata.uid
    priority = spec.priority if spec.priority is not None else _priority(metadata.labels or {})
    spec = replace(spec, node_name=status.node_name if status.phase != PENDING else "", priority=priority)
    if reservation.is_available and status.allocatable is not None:
        spec = _holding(spec, requests_text(replace(reservation, metadata=Metadata())), status.allocatable)
    phase = status.phase if reservation.is_ended else ""
    return Pod(
        metadata=Metadata(
            name=metadata.uid,
            uid=metadata.uid,
            namespace=template.metadata.namespace or "default",
            labels=labels or None,
            annotations=annotations,
            creation_timestamp=metadata.creation_timestamp,
            deletion_timestamp=metadata.deletion_timestamp,
        ),
        spec=spec,
        status=PodStatus(phase=phase),
    )


def _holding(spec: PodSpec, requested: Quantities, allocatable: Quantities) -> PodSpec:
    """Returns the spec with the amounts that the reservation holds, where they are not those of its template: in one
    more container, all others being emptied.
    """
    if {name: nanos(text) for name, text in requested.items()} == {n: nanos(text) for n, text in allocatable.items()}:
        return spec
    held = {**requested, **allocatable}
    held.pop("pods", None)  # a number of owners, not an amount of the node
    container = Container(
        name="__internal_fake_container__", resources=ResourceRequirements(requests=held, limits=held)
    )
    return replace(
        spec,
        containers=(*(replace(each, resources=None) for each in spec.containers), container),
        init_containers=tuple(replace(each, resources=None) for each in spec.init_containers),
        overhead=None,
        resources=None,
    )


def _priority(labels: Mapping[str, str]) -> int:
    try:
        return min(max(int(labels[PRIORITY]), -MAX_PRIORITY - 1), MAX_PRIORITY)
    except (KeyError, ValueError):
        return MAX_PRIORITY


def allocated_text(name: str, uid: str) -> str:
    """Returns the annotation of a pod that uses a reservation."""
    return msgspec.json.encode({"name": name, "uid": uid}).decode()


def pre_allocated_pods(annotations: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the uid and the `namespace/name` of each pod that the placement of a reservation takes over."""
    text = annotations.get(PRE_ALLOCATED)
    return msgspec.json.decode(text, type=tuple[tuple[str, str], ...]) if text else ()
