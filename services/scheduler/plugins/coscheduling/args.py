"""CoschedulingArgs. Source: spec/scheduler-workloads.md 2.1; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from services.scheduler.plugins.helper.plugin_args import check_duration, decode_args
from shared.domain.gang import MATCH_POLICIES, ONCE_SATISFIED
from shared.errors import KoordError
from shared.kube.instants import SECOND, duration_ns

UNUSED = ("controllerWorkers", "skipCheckScheduleCycle")
"""Arguments of upstream's that are checked and have no effect."""

DEFAULT_WAITING_NS = 600 * SECOND


class BadCoschedulingArgs(KoordError):
    """CoschedulingArgs that cannot be used."""


class _Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    default_timeout: str | None = None
    controller_workers: Annotated[int, Meta(ge=1)] | None = None
    skip_check_schedule_cycle: bool | None = None
    enable_preemption: bool | None = None
    aware_network_topology: bool | None = None
    default_match_policy: str | None = None


class CoschedulingArgs(msgspec.Struct, frozen=True):
    """The arguments in force.

    Attributes:
        match_policy: of gangs that declare none.
        waiting_ns: of gangs that declare no waiting time.
        preempts: pods of lower priority are evicted for a gang that cannot be placed.
        gathers: gangs gather in network domains as their annotation wishes.
    """

    match_policy: str = ONCE_SATISFIED
    waiting_ns: int = DEFAULT_WAITING_NS
    gathers: bool = False
    preempts: bool = False


def read_coscheduling_args(raw: Mapping[str, Any], source: str) -> CoschedulingArgs:
    """Reads the arguments.

    Raises:
        BadCoschedulingArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, _Args, source, BadCoschedulingArgs)
    waiting_ns = 0
    if args.default_timeout is not None:
        check_duration("defaultTimeout", args.default_timeout, source, BadCoschedulingArgs)
        waiting_ns = duration_ns(args.default_timeout)
    policy = args.default_match_policy or ONCE_SATISFIED
    if policy not in MATCH_POLICIES:
        raise BadCoschedulingArgs(
            f"{source}: defaultMatchPolicy is {policy!r}; give one of {', '.join(MATCH_POLICIES)}"
        )
    return CoschedulingArgs(
        match_policy=policy,
        waiting_ns=waiting_ns or DEFAULT_WAITING_NS,
        gathers=bool(args.aware_network_topology),
        preempts=bool(args.enable_preemption),
    )
