"""Reservations with their owners, and pods, as upstream caches them.

Source: spec/scheduler-workloads.md 1.1, 1.4, 1.13; upstream pkg/scheduler/frameworkext/reservation_info.go.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cli.parity.upstream.reservation.quirks import Quirk, Quirks
from shared.domain.cpu_set import BadCpuList, parse_cpus
from shared.domain.pod_requests import DEFAULT_REQUESTS, held_requests, pod_requests, whole
from shared.kube.pod import Pod
from shared.kube.quantity import amount, amounts

Json = Mapping[str, Any]
Amounts = dict[str, int]

ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
OPTIONS = "scheduling.koordinator.sh/reservation-restricted-options"
INNER = "node.koordinator.sh/reservation"
ORDER = "scheduling.koordinator.sh/reservation-order"
RESTRICTED = "Restricted"

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NONZERO = {name: amount(name, size) for name, size in DEFAULT_REQUESTS.items()}


def requests_of(pod: Json) -> Amounts:
    """Returns the requests of a pod."""
    return whole(pod_requests(msgspec.convert(pod, Pod)))


def nonzero_of(pod: Json) -> Amounts:
    """Returns cpu and memory as they count on a node for scores."""
    found = whole(held_requests(msgspec.convert(pod, Pod)))
    return {name: found.get(name, 0) for name in ("cpu", "memory")}


def added(*parts: Mapping[str, int]) -> Amounts:
    """Returns the sum."""
    total: Amounts = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


def shown(part: Mapping[str, int]) -> Amounts:
    """Returns amounts as the record has them: cpu and memory always, other resources where they are not 0."""
    others = {name: size for name, size in part.items() if size and name not in ("cpu", "memory", "pods")}
    return {"cpu": part.get("cpu", 0), "memory": part.get("memory", 0), **others}


def negative(part: Mapping[str, int]) -> Amounts:
    """Returns the amounts with the other sign."""
    return {name: -size for name, size in part.items()}


@dataclass(eq=False)
class Reserved:
    """One Reservation.

    Attributes:
        names: the resources of which owners use its amounts, in order.
        inner: amounts that no owner may use.
        owners: uid of a pod that uses it -> its request.
        is_valid: its annotations and owners can be read.
    """

    raw: Json
    allocatable: Amounts
    names: list[str]
    inner: Amounts
    is_valid: bool
    owners: dict[str, Amounts] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.raw["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Its uid."""
        return str(self.raw["metadata"]["uid"])

    @property
    def node(self) -> str:
        """The node that holds it."""
        return str(self.raw.get("status", {}).get("nodeName", ""))

    @property
    def policy(self) -> str:
        """Its allocate policy."""
        return str(self.raw["spec"].get("allocatePolicy", ""))

    @property
    def is_available(self) -> bool:
        """Returns True where it holds capacity."""
        return bool(self.raw.get("status", {}).get("phase") == "Available" and self.node)

    @property
    def is_consumed(self) -> bool:
        """Returns True where one owner is enough, and has come."""
        return self.raw["spec"].get("allocateOnce") is not False and bool(self.owners)

    @property
    def order(self) -> int:
        """Its place; 0 without one."""
        try:
            return int((self.raw["metadata"].get("labels") or {}).get(ORDER, ""))
        except ValueError:
            return 0

    def allocated(self, *, without: Iterable[str] = ()) -> Amounts:
        """Returns the sum of its owners' requests, of restricted resources.

        Args:
            without: uids of owners that do not count.
        """
        left = [request for uid, request in self.owners.items() if uid not in without]
        return added(*({name: request[name] for name in self.names if name in request} for request in left))

    def counted(self, quirks: Quirks) -> Amounts:
        """Returns what its owners take from its reserve pod."""
        used = self.allocated()
        if Quirk.WHOLE_OWNER in quirks:
            return used
        return {name: min(size, self.allocatable.get(name, 0)) for name, size in used.items()}

    def counted_nonzero(self, quirks: Quirks) -> Amounts:
        """Returns the same of cpu and memory as they count for scores: with defaults for what no owner requests."""
        if not self.owners:
            return {}
        used = self.allocated()
        found = {name: used.get(name, _NONZERO[name]) for name in ("cpu", "memory")}
        if Quirk.WHOLE_OWNER in quirks:
            return found
        held = self.held_nonzero()
        return {name: min(size, held[name]) for name, size in found.items()}

    def held(self) -> Amounts:
        """Returns the requests of its reserve pod."""
        template = requests_of({"metadata": {}, **self.raw["spec"]["template"]})
        return {name: size for name, size in (template | self.allocatable).items() if name != "pods"}

    def held_nonzero(self) -> Amounts:
        """Returns cpu and memory of its reserve pod as they count for scores."""
        held, template = self.held(), self.raw["spec"]["template"]
        emptied = (
            template["spec"]["containers"] if self.allocatable != requests_of({"metadata": {}, **template}) else ()
        )
        return {name: held.get(name, _NONZERO[name]) + len(emptied) * _NONZERO[name] for name in ("cpu", "memory")}

    def available(self) -> Amounts:
        """Returns what is left of it for owners."""
        used = self.allocated()
        return {
            name: max(0, size - used.get(name, 0) - self.inner.get(name, 0)) for name, size in self.allocatable.items()
        }


def reserved_of(raw: Json, quirks: Quirks, *, is_updated: bool) -> Reserved:
    """Reads a Reservation.

    Args:
        is_updated: its last event is an update.
    """
    annotations = raw["metadata"].get("annotations") or {}
    template = raw["spec"].get("template") or {}
    allocatable = amounts(raw.get("status", {}).get("allocatable") or {}) or requests_of({"metadata": {}, **template})
    is_valid = all(_is_valid(owner) for owner in raw["spec"].get("owners", ()))
    names = sorted(allocatable)
    try:
        listed = json.loads(annotations.get(OPTIONS, "{}")).get("resources") or []
    except json.JSONDecodeError:
        listed, is_valid = [], False
    if raw["spec"].get("allocatePolicy") == RESTRICTED:
        names = [name for name in names if name in listed] or names
    inner = _inner(annotations)
    if is_updated and Quirk.CUT_INNER in quirks:
        inner = {name: size for name, size in inner.items() if name in names}
    return Reserved(raw, allocatable, names, inner, is_valid)


def _inner(annotations: Json) -> Amounts:
    found = json.loads(annotations.get(INNER, "{}"))
    inner = amounts(found.get("resources") or {})
    if listed := found.get("reservedCPUs"):
        try:
            inner["cpu"] = 1000 * len(parse_cpus(listed))
        except BadCpuList:
            return inner
    return inner


def _is_valid(owner: Json) -> bool:
    expressions = (owner.get("labelSelector") or {}).get("matchExpressions") or ()
    return all(expression["operator"] in _OPERATORS for expression in expressions)
