"""The `reservation` cases of `device`: pods against one node whose Reservations hold devices.

Matching is given, not computed, so the steps are those of the objects that a cycle works with, in upstream's order.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.runners.scheduler.device_words import by_minor, free_amounts, plain, status_of
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from services.scheduler.plugins.device_share.device_usage import Allocation, DevicesInUse, DeviceUsage, is_zero
from services.scheduler.plugins.device_share.devices_in_reservations import (
    HeldDevices,
    MatchedReservations,
    choose_on_node,
    choose_within,
    held_devices,
    unmatched_used,
)
from services.scheduler.plugins.device_share.devices_of_node import NodeDevices
from services.scheduler.plugins.device_share.filter_score_reserve_on_one_node import DeviceAdmission, DeviceSettings
from services.scheduler.plugins.device_share.pod_device_requests import DeviceRequests
from services.scheduler.plugins.helper.rejections import Rejection
from shared.domain.reservation import RESTRICTED
from shared.kube.pod import Pod

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
IGNORED = "scheduling.koordinator.sh/reservation-ignored"
SUCCESS = {"code": "Success"}

Json = Mapping[str, Any]


class NodeWithReservations:
    """A node, its Reservations, and one pod."""

    def __init__(
        self,
        given: Json,
        devices: NodeDevices,
        requests: DeviceRequests,
        running: list[Allocation],
        settings: DeviceSettings,
    ) -> None:
        self._devices, self._running = devices, list(running)
        self._matched: list[HeldDevices] = []
        others: list[HeldDevices] = []
        for each in given["reservations"]:
            held = self._held(each)
            (self._matched if each["matched"] else others).append(held)
        self._others = others
        pod = msgspec.convert(given["pod"], Pod)
        usable = [held for held in self._matched if held.allocatable]
        self._unmatched = {
            type_: left
            for type_, minors in unmatched_used(others).items()
            if (left := {minor: amounts for minor, amounts in minors.items() if not is_zero(amounts)})
        }
        is_required = AFFINITY in (pod.metadata.annotations or {}) and bool(usable)
        self._reservations = MatchedReservations(usable, self._unmatched, is_required)
        self._is_ignored = (pod.metadata.labels or {}).get(IGNORED) == "true"
        self._nominated = next((held for held in usable if held.name == given["nominated"]), None)
        self._has_nominated = any(held.name == given["nominated"] for held in self._matched)
        self._admission = DeviceAdmission(requests, DevicesInUse(devices, DeviceUsage(self._running)), settings)

    def _held(self, given: Json) -> HeldDevices:
        raw = given["reservation"]
        held = allocation_of(raw["metadata"].get("annotations"))
        owners = [allocation_of(owner["metadata"].get("annotations")) for owner in given["owners"]]
        self._running += [held, *owners]
        return held_devices(
            raw["metadata"]["name"], held, owners, is_restricted=raw["spec"].get("allocatePolicy") == RESTRICTED
        )

    @property
    def usage(self) -> DeviceUsage:
        """The use by running pods, reserve pods and owners."""
        return self._admission.node.usage

    def answer(self) -> dict[str, Any]:
        """Tries the pod."""
        listed = [held for held in (*self._matched, *self._others) if held.allocatable]
        found: dict[str, Any] = {
            "restored": {
                held.name: {
                    "allocatable": by_minor(held.allocatable),
                    "allocated": by_minor(held.allocated),
                    "remained": by_minor(held.remained),
                }
                for held in listed
            },
            "unmatchedUsed": by_minor(self._unmatched),
        }
        found["filter"] = status_of(self._admission.unfit or self._chosen(final=False))
        if found["filter"] != SUCCESS:
            return found
        found["filterNominate"] = {held.name: self._nominate(held) for held in self._matched}
        scores = {held.name: self._score(held) for held in self._matched}
        found["scoreReservation"] = scores
        if self._has_nominated:
            found["score"] = scores[self._nominated.name] if self._nominated is not None else 0
        else:
            found["score"] = self._admission.score_within(None, self._reservations.all_lifted())
        return found | self._reserve()

    def _chosen(self, *, final: bool) -> Allocation | Rejection:
        if self._is_ignored:
            return self._admission.choose(None, self._reservations.all_lifted(), final=final)
        return choose_on_node(self._admission, self._reservations, final=final)

    def _nominate(self, held: HeldDevices) -> dict[str, Any]:
        if self._is_ignored or not held.allocatable:
            return dict(SUCCESS)
        return status_of(choose_within(self._admission, held, self._reservations))

    def _score(self, held: HeldDevices) -> Any:
        return self._admission.score_within(None, self._reservations.scored(held)) if held.allocatable else 0

    def _reserve(self) -> dict[str, Any]:
        chosen: Allocation | Rejection | None = None
        if self._nominated is not None and not self._is_ignored:
            chosen = choose_within(self._admission, self._nominated, self._reservations, final=True)
            if isinstance(chosen, Rejection):
                chosen = self._chosen(final=True)
        if chosen is None:
            chosen = self._admission.choose(None, self._reservations.all_lifted(), final=True)
        found: dict[str, Any] = {"reserve": status_of(chosen)}
        if isinstance(chosen, Rejection):
            return found
        after = free_amounts(self._devices, DeviceUsage([*self._running, chosen]))
        left: dict[str, dict[str, Any]] = {}
        for device in chosen:
            left.setdefault(device.type, {})[str(device.minor)] = after[device.type][str(device.minor)]
        return found | {"allocation": plain(chosen), "freeAfter": left}
