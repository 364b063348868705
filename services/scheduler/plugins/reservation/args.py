"""ReservationArgs. Source: spec/api.md 4.3; spec/scheduler-workloads.md 1.8."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.domain.reservation import PRE_ALLOCATABLE, PRE_ALLOCATABLE_PRIORITY
from shared.errors import KoordError

UNUSED_ARGS = (
    "minCandidateNodesPercentage", "minCandidateNodesAbsolute", "controllerWorkers",
    "gcDurationSeconds", "gcIntervalSeconds", "resyncIntervalSeconds", "disableGarbageCollection",
    "reservationSelectorIndex",
)  # fmt: skip
"""Arguments that are checked and have no effect: DefaultPreemption chooses the candidates, the life cycle has
settings of its own, and an index of selectors never changes a result."""

Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class BadReservationArgs(KoordError):
    """ReservationArgs that cannot be used."""


class _PreAllocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    enable_cluster_mode: bool | None = None
    cluster_label_key: str | None = None
    cluster_priority_annotation_key: str | None = None
    prefer_no_pre_allocated_pods: bool | None = None

    @property
    def label(self) -> str:
        """The label of the pods that Reservations in cluster mode take over, with the value `true`."""
        return self.cluster_label_key or PRE_ALLOCATABLE

    @property
    def prefers_none(self) -> bool:
        """Returns True where no pod is taken over on a node that has enough without."""
        return bool(self.prefer_no_pre_allocated_pods)


class _SelectorIndex(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    enabled: bool | None = None
    key_prefixes: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None


class ReservationArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The arguments; those of UNUSED_ARGS are checked alone.

    Attributes:
        enable_preemption: pods of lower priority are evicted for a Reservation that no node admits.
    """

    enable_preemption: bool | None = None
    min_candidate_nodes_percentage: Percent | None = None
    min_candidate_nodes_absolute: Natural | None = None
    controller_workers: Natural | None = None
    gc_duration_seconds: Natural | None = None
    gc_interval_seconds: Natural | None = None
    resync_interval_seconds: Natural | None = None
    disable_garbage_collection: bool | None = None
    pre_allocation_config: _PreAllocation | None = None
    ignored_resources: tuple[str, ...] | None = None
    ignored_resource_groups: tuple[str, ...] | None = None
    reservation_selector_index: _SelectorIndex | None = None

    @property
    def pre_allocation(self) -> _PreAllocation:
        """`preAllocationConfig`."""
        return self.pre_allocation_config or _PreAllocation()

    def ignores(self, resource: str) -> bool:
        """Reports whether the capacity of a node is not checked for an extended resource."""
        group, slash, _ = resource.partition("/")
        return resource in (self.ignored_resources or ()) or (
            bool(slash) and group in (self.ignored_resource_groups or ())
        )


def read_reservation_args(raw: Mapping[str, Any], source: str) -> ReservationArgs:
    """Reads the arguments.

    Raises:
        BadReservationArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, ReservationArgs, source, BadReservationArgs)
    for number, resource in enumerate(args.ignored_resources or ()):
        group, slash, _ = resource.partition("/")
        if not slash or group == "kubernetes.io" or group.endswith(".kubernetes.io"):
            raise BadReservationArgs(
                f"{source}: ignoredResources[{number}] is {resource!r}; give extended resources only"
            )
    priority_key = args.pre_allocation.cluster_priority_annotation_key
    if priority_key not in (None, "", PRE_ALLOCATABLE_PRIORITY):
        raise BadReservationArgs(
            f"{source}: preAllocationConfig.clusterPriorityAnnotationKey is {priority_key!r}; only"
            f" {PRE_ALLOCATABLE_PRIORITY} is read"
        )
    for number, group in enumerate(args.ignored_resource_groups or ()):
        if "/" in group or group == "kubernetes.io":
            raise BadReservationArgs(
                f"{source}: ignoredResourceGroups[{number}] is {group!r}; give a group other than kubernetes.io, without a slash"
            )
    return args
