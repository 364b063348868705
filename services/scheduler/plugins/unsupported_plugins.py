"""Plugins of Kubernetes and Koordinator that this release does not have; their arguments are checked all the same.

A configuration with a mistake is rejected on the day it is written, not on the day its plugin is added.

Source: spec/api.md 4.3; Kubernetes' kubescheduler.config.k8s.io/v1 and its validation.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from services.scheduler.framework.registry import ArgsCheck
from services.scheduler.plugins.helper.plugin_args import check_duration
from shared.errors import KoordError

Percent = Annotated[int, Meta(ge=0, le=100)]
Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Weight = Annotated[int, Meta(ge=1, le=100)]
Duration = str
_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio", "BalancedAllocation")


class BadArgs(KoordError):
    """Arguments that cannot be used; gives the path, the value and what is allowed."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class _PreAllocation(_Strict, frozen=True):
    enable_cluster_mode: bool | None = None
    cluster_label_key: str | None = None
    cluster_priority_annotation_key: str | None = None
    prefer_no_pre_allocated_pods: bool | None = None


class _SelectorIndex(_Strict, frozen=True):
    enabled: bool | None = None
    key_prefixes: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None


class _Reservation(_Strict, frozen=True):
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


class _Coscheduling(_Strict, frozen=True):
    default_timeout: Duration | None = None
    controller_workers: Positive | None = None
    skip_check_schedule_cycle: bool | None = None
    enable_preemption: bool | None = None
    aware_network_topology: bool | None = None
    default_match_policy: str | None = None


class _Weighted(_Strict, frozen=True):
    name: str
    weight: Weight = 1


class _Strategy(_Strict, frozen=True):
    type: str = ""
    resources: tuple[_Weighted, ...] | None = None
    requested_to_capacity_ratio: dict[str, Any] | None = None


class _Templates(_Strict, frozen=True):
    config_map_namespace: str | None = None
    config_map_name: str | None = None
    matched_resources: tuple[str, ...] | None = None


class _Unshared(_Strict, frozen=True):
    vendor: str
    model: str


class _DeviceShare(_Strict, frozen=True):
    allocator: str | None = None
    scoring_strategy: _Strategy | None = None
    disable_device_numa_topology_alignment: bool | None = msgspec.field(
        default=None, name="disableDeviceNUMATopologyAlignment"
    )
    gpu_shared_resource_templates_config: _Templates | None = None
    gpu_share_unsupported_models: tuple[_Unshared, ...] | None = None


class _DynamicResources(_Strict, frozen=True):
    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None


_ARGS: Mapping[str, type[_Strict]] = {
    "Reservation": _Reservation,
    "Coscheduling": _Coscheduling,
    "DeviceShare": _DeviceShare,
    "DynamicResources": _DynamicResources,
}
"""Plugin -> type of its arguments."""


def _check(plugin: str, raw: Mapping[str, Any], source: str) -> None:
    """Checks the arguments of one of _ARGS.

    Raises:
        BadArgs: a field is unknown, of the wrong type, or out of range.
    """
    given = {name: value for name, value in raw.items() if name not in ("apiVersion", "kind") and value is not None}
    try:
        args = msgspec.convert(given, _ARGS[plugin])
    except msgspec.ValidationError as error:
        raise BadArgs(f"{source}: {error}") from error
    match args:
        case _Reservation():
            _check_ignored(args, source)
        case _Coscheduling(default_timeout=text) if text is not None:
            check_duration("defaultTimeout", text, source, BadArgs)
        case _DeviceShare(scoring_strategy=strategy) if strategy and strategy.type not in ("", *_STRATEGIES):
            raise BadArgs(f"{source}: scoringStrategy.type is {strategy.type!r}; give one of {', '.join(_STRATEGIES)}")
        case _DynamicResources():
            for name in ("filterTimeout", "bindingTimeout"):
                if name in given:
                    check_duration(name, given[name], source, BadArgs)


def _check_ignored(args: _Reservation, source: str) -> None:
    for number, resource in enumerate(args.ignored_resources or ()):
        group, slash, _ = resource.partition("/")
        if not slash or group == "kubernetes.io" or group.endswith(".kubernetes.io"):
            raise BadArgs(f"{source}: ignoredResources[{number}] is {resource!r}; give extended resources only")
    for number, group in enumerate(args.ignored_resource_groups or ()):
        if "/" in group or group == "kubernetes.io":
            raise BadArgs(
                f"{source}: ignoredResourceGroups[{number}] is {group!r}; give a group other than kubernetes.io, without a slash"
            )


UNSUPPORTED: Mapping[str, ArgsCheck | None] = {
    "NodeDeclaredFeatures": None,
    **{name: partial(_check, name) for name in _ARGS},
}
"""Plugin -> check of its arguments, if these are known."""
