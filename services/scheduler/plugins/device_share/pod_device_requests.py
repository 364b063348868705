"""The devices that a pod requests, in their normal forms, and its wishes about them.

Source: spec/scheduler-workloads.md 3.2, 3.3; upstream pkg/scheduler/plugins/deviceshare/{plugin,utils}.go,
apis/extension/device_share.go.
"""

import json
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.device_share.devices_of_node import Amounts
from services.scheduler.plugins.helper.rejections import Rejection
from shared.domain.device_requests import (
    MEMORY,
    RATIO,
    SHARED,
    TYPE_OF,
    InvalidDeviceRequest,
    normal_device_requests,
)
from shared.domain.label_selectors import Selector, canonical
from shared.domain.pod_annotations import (
    ALLOCATE_HINT,
    JOINT_ALLOCATE,
    PARTITION_SPEC,
    DeviceHint,
    JointAllocate,
    PartitionSpec,
)
from shared.kube.device import GPU, ISOLATION_PROVIDER
from shared.kube.json_text import read_json
from shared.kube.pod import Pod
from shared.kube.quantity import BadQuantity, nanos, value
from shared.type_error_words import field_fault, unreadable_annotation

APPLY_FOR_ALL, REQUESTS_AS_COUNT = "ApplyForAll", "RequestsAsCount"
DEVICE_LEVEL = "DeviceLevel"
SAME_PCIE = "SamePCIe"
RESTRICTED = "Restricted"
_OPERATORS = frozenset(("In", "NotIn", "Exists", "DoesNotExist"))
T = TypeVar("T")


class GpuRequest(NamedTuple):
    """The number of GPUs, and what is requested of each.

    Attributes:
        shared: a part of a GPU is enough, so that other pods may use the rest.
    """

    number: int
    each: Amounts
    shared: bool


class Wish(NamedTuple):
    """The wishes about devices of one type.

    Attributes:
        selector: labels of the devices; None without a selector.
        functions: labels of virtual functions, of which each device gives one; None: whole devices.
        strategy: APPLY_FOR_ALL, REQUESTS_AS_COUNT, or anything else for neither.
        scope: the devices are below one of this kind.
        exclusive: as the annotation has it.
    """

    selector: Selector | None = None
    functions: Selector | None = None
    strategy: str = ""
    scope: str = ""
    exclusive: str = ""


class PartitionWish(NamedTuple):
    """Only a partition will do: the best one or none where restricted, with at least this bandwidth."""

    restricted: bool
    bandwidth: int


NO_WISH = Wish()


class DeviceRequests(NamedTuple):
    """The devices that a pod requests.

    Attributes:
        of_type: type -> resource -> amount, of all devices together.
        gpu: the same per GPU; None without GPUs.
        wishes: type -> wishes.
        joint: types to be allocated together, the first one first; empty without a wish.
        same_pcie: these have to be below the same PCIe switches.
        partition: None without the annotation.
        isolation: the isolation that a shared GPU needs on the node.
    """

    of_type: Mapping[str, Amounts]
    gpu: GpuRequest | None
    wishes: Mapping[str, Wish]
    joint: tuple[str, ...]
    same_pcie: bool
    partition: PartitionWish | None
    isolation: str

    def wish(self, type_: str) -> Wish:
        """The wishes about devices of a type."""
        return self.wishes.get(type_, NO_WISH)

    @property
    def shares_gpu(self) -> bool:
        """Returns True for a pod that requests a part of a GPU."""
        return self.gpu is not None and self.gpu.shared

    @property
    def key(self) -> Hashable:
        """A key that is equal for equal requests."""
        gpu = self.gpu
        return (
            tuple((type_, tuple(sorted(amounts.items()))) for type_, amounts in self.of_type.items()),
            gpu and (gpu.number, tuple(sorted(gpu.each.items())), gpu.shared),
            tuple(sorted(self.wishes.items())),
            *self[3:],
        )


class RequestedDevices:
    """The requests of one class of pods, with their key."""

    def __init__(self, requests: DeviceRequests) -> None:
        self.requests = requests

    @cached_property
    def key(self) -> Hashable:
        """A key that is equal for equal requests."""
        return self.requests.key


class _BadRequest(Exception):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code, self.detail = code, detail


def read_device_requests(pod: Pod, requested: Amounts) -> DeviceRequests | Rejection | None:
    """Reads the requests of a pod; None where it requests no devices, a rejection where they are invalid."""
    try:
        of_type = normal_device_requests(requested)
        return _with_wishes(pod, of_type) if of_type else None
    except (InvalidDeviceRequest, _BadRequest) as bad:
        return Rejection((Reason(bad.code, bad.detail),), unresolvable=True)


def _gpu_request(requested: Amounts) -> GpuRequest:
    ratio = requested.get(RATIO, 0)
    count = requested.get(SHARED, 0) or (ratio // 100 if ratio > 100 and ratio % 100 == 0 else 1)
    each = {name: size // count for name, size in requested.items() if name != SHARED}
    shared = each[RATIO] < 100 if RATIO in each else MEMORY in each
    return GpuRequest(count, each, shared)


def _with_wishes(pod: Pod, of_type: dict[str, dict[str, int]]) -> DeviceRequests:
    notes = pod.metadata.annotations or {}
    hints: dict[str, DeviceHint] = _annotation(notes, ALLOCATE_HINT, dict[str, DeviceHint]) or {}
    joint: JointAllocate | None = _annotation(notes, JOINT_ALLOCATE, JointAllocate)
    spec: PartitionSpec | None = _annotation(notes, PARTITION_SPEC, PartitionSpec)
    wishes = {type_: _wish(type_, hint) for type_, hint in hints.items()}
    together = tuple(
        type_
        for type_ in (joint.device_types if joint else ())
        if type_ in of_type and wishes.get(type_, NO_WISH).strategy != APPLY_FOR_ALL
    )
    try:
        bandwidth = value(nanos(spec.ring_bus_bandwidth or "0")) if spec else 0
    except BadQuantity as error:
        raise _BadRequest("UnreadableAnnotation", unreadable_annotation(PARTITION_SPEC, str(error))) from error
    return DeviceRequests(
        of_type,
        _gpu_request(of_type[GPU]) if GPU in of_type else None,
        wishes,
        together,
        joint is not None and joint.required_scope == SAME_PCIE,
        None if spec is None else PartitionWish(spec.allocate_policy == RESTRICTED, bandwidth),
        (pod.metadata.labels or {}).get(ISOLATION_PROVIDER, ""),
    )


def _annotation(notes: Mapping[str, str], name: str, kind: type[T]) -> T | None:
    text = notes.get(name)
    if not text:
        return None
    try:
        read: T = read_json(text, kind)
    except msgspec.MsgspecError as error:
        raise _BadRequest("UnreadableAnnotation", unreadable_annotation(name, _fault(text, error))) from error
    return read


def _fault(text: str, error: msgspec.MsgspecError) -> str:
    """Returns what is wrong; of a fault of syntax the character and its place."""
    try:
        json.loads(text)
    except json.JSONDecodeError as syntax:
        if syntax.pos >= len(text.rstrip()):
            return "it is no JSON: its end is missing"
        if syntax.msg == "Expecting value":
            return f"it is no JSON: no value begins with {text[syntax.pos]!r}, character {syntax.pos + 1}"
    except RecursionError:
        pass  # nested too deeply for this parser: the words of the other one
    return field_fault(error)


def _wish(type_: str, hint: DeviceHint) -> Wish:
    selectors = (("selector", hint.selector), ("vfSelector", hint.vf_selector))
    for label, selector in selectors:
        for each in selector.match_expressions if selector else ():
            if each.operator not in _OPERATORS:
                fault = f"{type_}.{label}: {each.operator!r} is no operator; those of label selectors are {', '.join(sorted(_OPERATORS))}"
                detail = unreadable_annotation(ALLOCATE_HINT, fault)
                raise _BadRequest("UnreadableAnnotation", detail)
    return Wish(
        canonical(hint.selector) or None,
        canonical(hint.vf_selector),
        hint.allocate_strategy,
        hint.required_topology_scope,
        hint.exclusive_policy,
    )


def device_resources(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the resources among these that devices have."""
    return tuple(name for name in names if name in TYPE_OF)
