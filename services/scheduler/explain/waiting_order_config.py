"""The part of the configuration in force that the order of waiting pods depends on, and which objects it reads. It makes
no plugin, so that commands which show waiting pods load no compiled code.
"""

from collections.abc import Mapping
from typing import NamedTuple

from services.scheduler.framework.config.checked_document import CheckedProfile, at_point, read_document
from services.scheduler.framework.config.decision_settings import in_force
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.plugins.coscheduling import SPEC as COSCHEDULING
from services.scheduler.plugins.coscheduling.args import CoschedulingArgs, read_coscheduling_args
from services.scheduler.plugins.device_share import SPEC as DEVICE_SHARE
from services.scheduler.plugins.registry import REGISTRY
from services.scheduler.plugins.reservation import SPEC as RESERVATION
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.component_config import BadConfig


class QueueRules(NamedTuple):
    """Rules of the queue.

    Attributes:
        schedulers: schedulerName of each profile -> its arguments of Coscheduling; None where it groups no gangs.
        shadowed: name of the scheduler whose pods are evaluated and never queued; empty for none.
        by_sub_priority: pods of equal priority are in the order of their sub-priority.
        reserving: a profile lets pods use Reservations.
        allocating: names of the profiles that allocate devices.
    """

    schedulers: Mapping[str, CoschedulingArgs | None]
    shadowed: str = ""
    by_sub_priority: bool = True
    reserving: bool = True
    allocating: frozenset[str] = frozenset()


def rules_in_force(view: SchedulerState) -> QueueRules:
    """Returns the rules by the configuration in force; those of the default profile where this release cannot read it."""
    try:
        document = read_document(view.config_text or DEFAULT_PROFILE, REGISTRY)
    except BadConfig:
        document = read_document(DEFAULT_PROFILE, REGISTRY)
    settings = in_force(view.config_settings)
    schedulers = {each.document.scheduler_name: _gang_args(each) for each in document.profiles}
    filters = {each.document.scheduler_name: at_point(each.sets.filter, each.multi) for each in document.profiles}
    reserving = any(RESERVATION.name in plugins for plugins in filters.values())
    allocating = frozenset(name for name, plugins in filters.items() if DEVICE_SHARE.name in plugins)
    return QueueRules(schedulers, settings.shadow_scheduler, settings.by_sub_priority, reserving, allocating)


def _gang_args(profile: CheckedProfile) -> CoschedulingArgs | None:
    if COSCHEDULING.name not in at_point(profile.sets.permit, profile.multi):
        return None
    path, args = profile.args.get(COSCHEDULING.name, ("", {}))
    return read_coscheduling_args(args, path)
