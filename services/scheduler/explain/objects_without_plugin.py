"""Gangs, Reservations and devices that a profile does not read: a configuration replaces the default one, and one that
does not enable their plugins places the members of a gang one by one, holds nothing for Reservations, and allocates no
devices.
"""

from collections.abc import Iterator
from typing import NamedTuple

from services.scheduler.explain.gang_status import profile_without_gangs
from services.scheduler.explain.waiting_order_config import QueueRules
from services.scheduler.plugins.coscheduling import SPEC as COSCHEDULING
from services.scheduler.plugins.device_share import SPEC as DEVICE_SHARE
from services.scheduler.plugins.device_share.pod_device_requests import device_resources
from services.scheduler.plugins.reservation import SPEC as RESERVATION
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import DEVICES, RESERVATIONS


class UnreadObjects(NamedTuple):
    """Objects of one kind that have no effect.

    Attributes:
        kind: `gang`, `Reservation`, `Device` or `pod`.
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
    """Yields the gangs whose pods belong to a profile without Coscheduling, all Reservations where no profile enables
    Reservation, and Devices and pods without DeviceShare.
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
    yield from _without_device_share(view, rules)


def _without_device_share(view: SchedulerState, rules: QueueRules) -> Iterator[UnreadObjects]:
    """Yields the Devices where no profile enables DeviceShare, and the pods of profiles without it that request devices.

    Pods on a node without a Device are left out: with DeviceShare too, the kubelet of such a node chooses the devices.
    """
    devices = view.objects.get(DEVICES, {})
    if not devices:
        return
    if not rules.allocating:
        lacking = tuple(sorted(rules.schedulers))
        yield UnreadObjects("Device", tuple(sorted(devices)), lacking, DEVICE_SHARE.name, "no pod is allocated devices")
    lacks_plugin = rules.schedulers.keys() - rules.allocating
    profiles: dict[str, str] = {}
    for record in view.pods.values():
        pod_class, node = record.pod_class, record.node_or_placement()
        if pod_class is None or record.ended or pod_class.scheduler not in lacks_plugin:
            continue
        if device_resources(pod_class.request) and (not node or node in devices):
            profiles[record.name] = pod_class.scheduler
    if profiles:
        effect = "placed without any device of their own"
        lacking = tuple(sorted(set(profiles.values())))
        yield UnreadObjects("pod", tuple(sorted(profiles)), lacking, DEVICE_SHARE.name, effect)
