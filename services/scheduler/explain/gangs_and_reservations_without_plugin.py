"""Gangs and Reservations that a profile does not read: a configuration replaces the default one, and one that does not
enable their plugins places the members of a gang one by one, and holds nothing for Reservations.
"""

from collections.abc import Iterator
from typing import NamedTuple

from services.scheduler.explain.gang_status import profile_without_gangs
from services.scheduler.explain.waiting_order_config import QueueRules
from services.scheduler.plugins.coscheduling import SPEC as COSCHEDULING
from services.scheduler.plugins.reservation import SPEC as RESERVATION
from services.scheduler.state.other_watched_resources import RESERVATIONS
from services.scheduler.state.scheduler_state import SchedulerState


class UnreadObjects(NamedTuple):
    """Objects of one kind that have no effect.

    Attributes:
        kind: `gang` or `Reservation`.
        names: of all of them, sorted.
        profiles: names of the profiles that lack the plugin.
        effect: what happens without it.
    """

    kind: str
    names: tuple[str, ...]
    profiles: tuple[str, ...]
    plugin: str
    effect: str


def objects_without_plugin(view: SchedulerState, rules: QueueRules) -> Iterator[UnreadObjects]:
    """Yields the gangs whose pods belong to a profile without Coscheduling, and all Reservations where no profile enables
    Reservation.
    """
    profiles = {name: profile_without_gangs(view, rules, record) for name, record in view.gangs.gangs.items()}
    ignored = tuple(sorted(name for name, profile in profiles.items() if profile))
    if ignored:
        lacking = tuple(sorted({profiles[name] for name in ignored}))
        yield UnreadObjects("gang", ignored, lacking, COSCHEDULING.name, "members are placed one by one")
    reservations = tuple(sorted(view.objects.get(RESERVATIONS, {})))
    if reservations and not rules.reserving:
        lacking = tuple(sorted(rules.schedulers))
        yield UnreadObjects("Reservation", reservations, lacking, RESERVATION.name, "no pod uses held capacity")
