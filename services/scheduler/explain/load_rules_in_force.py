"""The rules of LoadAwareScheduling for one node, by the configuration in force. No plugin and no array is made."""

from collections.abc import Mapping
from typing import NamedTuple

from services.scheduler.framework.config.checked_document import at_point, read_document
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.plugins.load_aware_scheduling import SPEC
from services.scheduler.plugins.load_aware_scheduling.args import BadArgs, read_args
from services.scheduler.plugins.load_aware_scheduling.node_thresholds import default_thresholds, node_thresholds
from services.scheduler.plugins.registry import REGISTRY
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.component_config import BadConfig
from shared.kube.node import Node


class LoadRules(NamedTuple):
    """Rules of one profile.

    Attributes:
        scheduler: schedulerName of the profile.
        thresholds: resource -> percent of allocatable beyond which a node is rejected; resources without one are left
            out. of_window: they are compared with a percentile over a window, such as `p95`; empty for the mean.
        expiration_ns: age from which on a report is expired; rejects_expired: a node with such a report is rejected.
    """

    scheduler: str
    thresholds: Mapping[str, int]
    of_window: str
    expiration_ns: int
    rejects_expired: bool


def load_rules(view: SchedulerState, node: Node) -> list[LoadRules]:
    """Returns the rules of each profile that filters nodes by their load; none where this release cannot read them."""
    try:
        document = read_document(view.config_text or DEFAULT_PROFILE, REGISTRY)
    except BadConfig:
        return []
    found = []
    for profile in document.profiles:
        if SPEC.name not in at_point(profile.sets.filter, profile.multi):
            continue
        path, raw = profile.args.get(SPEC.name, ("", {}))
        try:
            args = read_args(raw, path)
        except BadArgs:
            continue
        limits = node_thresholds(node, default_thresholds(args))
        found.append(
            LoadRules(
                profile.document.scheduler_name,
                {name: percent for name, percent in limits.usage.items() if percent},
                limits.window.type if limits.window else "",
                args.expiration_ns,
                bool(args.filter_expired_node_metrics) and not args.enable_schedule_when_node_metrics_expired,
            )
        )
    return found
