"""PodTopologySpreadArgs. Source: spec/scheduler-core.md 2.6; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.errors import KoordError
from shared.kube.pod import TopologySpreadConstraint

HOSTNAME = "kubernetes.io/hostname"


HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


class SpreadArgs(NamedTuple):
    """Default constraints, for pods that have none; `are_systems` for those that Kubernetes has built in."""

    defaults: tuple[TopologySpreadConstraint, ...]
    are_systems: bool


SYSTEM_DEFAULTS = SpreadArgs(
    (
        TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
        TopologySpreadConstraint(max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SOFT),
    ),
    are_systems=True,
)


class BadSpreadArgs(KoordError):
    """PodTopologySpreadArgs that cannot be used; gives the path, the value and what is allowed."""


class _Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = "System"


def read_spread_args(raw: Mapping[str, Any], source: str = "PodTopologySpreadArgs") -> SpreadArgs:
    """Decodes and checks PodTopologySpreadArgs.

    Raises:
        BadSpreadArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, _Args, source, BadSpreadArgs)
    if args.defaulting_type not in ("System", "List"):
        raise BadSpreadArgs(f"{source}: defaultingType is {args.defaulting_type!r}; give System or List")
    if args.defaulting_type == "System":
        if args.default_constraints:
            raise BadSpreadArgs(f"{source}: defaultConstraints are given; they hold only with defaultingType List")
        return SYSTEM_DEFAULTS
    seen: set[tuple[str, str]] = set()
    for number, constraint in enumerate(args.default_constraints):
        path = f"{source}: defaultConstraints[{number}]"
        which = (constraint.topology_key, constraint.when_unsatisfiable)
        if constraint.max_skew <= 0:
            raise BadSpreadArgs(f"{path}.maxSkew is {constraint.max_skew}; give a whole number above 0")
        if not constraint.topology_key:
            raise BadSpreadArgs(f"{path}.topologyKey is empty; give a label of the nodes")
        if constraint.when_unsatisfiable not in (HARD, SOFT):
            raise BadSpreadArgs(f"{path}.whenUnsatisfiable is {constraint.when_unsatisfiable!r}; give {HARD} or {SOFT}")
        if constraint.label_selector is not None:
            raise BadSpreadArgs(f"{path}.labelSelector is given; the pods' services and workloads select by default")
        if which in seen:
            raise BadSpreadArgs(f"{path} repeats {which[0]} with {which[1]}; give each pair once")
        seen.add(which)
    return SpreadArgs(args.default_constraints, are_systems=False)
