"""Admission of a pod to the devices of one node: filter, score and the choice of devices.

Source: spec/scheduler-workloads.md 3.4 to 3.7; upstream pkg/scheduler/plugins/deviceshare/{plugin,scoring,
topology_hint}.go.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.device_share.choose_devices import Choice, choose_devices, desired_devices
from services.scheduler.plugins.device_share.device_scores import ScoringStrategy, node_score
from services.scheduler.plugins.device_share.device_usage import (
    NOTHING_LIFTED,
    Allocation,
    DevicesInUse,
    DeviceView,
    Lifted,
)
from services.scheduler.plugins.device_share.devices_of_node import Amounts
from services.scheduler.plugins.device_share.pod_device_requests import DeviceRequests
from services.scheduler.plugins.helper.rejections import Rejection

Templates = Mapping[str, Mapping[str, Amounts]]
"""`vendor-model` -> name of a template -> its amounts."""


class DeviceSettings(NamedTuple):
    """The arguments of the plugin, as admission uses them.

    Attributes:
        unshared: (vendor, model) whose GPUs are given as wholes alone.
        aligns: the NUMA nodes of devices count.
        templated: resources of which only amounts of a template are given.
    """

    strategy: ScoringStrategy
    unshared: frozenset[tuple[str, str]]
    aligns: bool
    templated: frozenset[str]


def matched_templates(
    requests: DeviceRequests, settings: DeviceSettings, templates: Templates
) -> Mapping[str, tuple[str, ...]] | None:
    """Returns `vendor-model` -> templates that equal the request for one GPU; None where it needs none."""
    gpu = requests.gpu
    if gpu is None or not gpu.shared or settings.templated.isdisjoint(gpu.each):
        return None
    return {
        kind: names
        for kind, by_name in sorted(templates.items())
        if (names := tuple(name for name, amounts in sorted(by_name.items()) if amounts == gpu.each))
    }


class DeviceAdmission:
    """Admission of the pods of one class to one node."""

    def __init__(
        self,
        requests: DeviceRequests,
        node: DevicesInUse,
        settings: DeviceSettings,
        templates: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Begins with a node.

        Args:
            templates: result of `matched_templates`.
        """
        self.requests = requests
        self.node = node
        self.settings = settings
        devices = node.devices
        self._templates = None if templates is None else templates.get(f"{devices.vendor}-{devices.model}", ())
        self._chosen: dict[frozenset[int] | None, Allocation | Rejection] = {}

    @cached_property
    def unfit(self) -> Rejection | None:
        """The rejection of the node by its labels and the settings, for any free amounts."""
        devices = self.node.devices
        if not self.requests.shares_gpu:
            return None
        if self.requests.isolation and self.requests.isolation != devices.isolation:
            return Rejection((Reason("GpuIsolationMissing"),), unresolvable=True, error=True)
        if (devices.node_vendor, devices.node_model) in self.settings.unshared:
            detail = f'"{devices.node_model}" of vendor "{devices.node_vendor}"'
            return Rejection((Reason("GpuNotShared", detail),), unresolvable=True)
        return None

    @cached_property
    def rejection(self) -> Rejection | None:
        """The rejection of the node; None where it passes."""
        return self.unfit or self.try_within(None)

    def try_within(self, numas: frozenset[int] | None) -> Rejection | None:
        """Tries to choose devices below some NUMA nodes; the lowest minors come first."""
        found = self.choose(numas)
        return found if isinstance(found, Rejection) else None

    def choose(
        self, numas: frozenset[int] | None, lifted: Lifted = NOTHING_LIFTED, *, final: bool = False
    ) -> Allocation | Rejection:
        """Chooses devices; none where the node has no Device, so that its kubelet chooses."""
        if not self.node.devices.known:
            return ()
        choice = Choice(self.settings.strategy if final else None, lifted.preferred, final, self._templates)
        return choose_devices(self.view(numas, lifted), self.requests, choice)

    def reserve(self, numas: frozenset[int] | None = None) -> Allocation | Rejection:
        """Chooses the devices of a pod, by their scores."""
        if numas not in self._chosen:
            self._chosen[numas] = self.choose(numas, final=True)
        return self._chosen[numas]

    @cached_property
    def score(self) -> int:
        """The score of the node, the sum over types of 0..100."""
        found = self.score_within(None)
        return 0 if isinstance(found, Rejection) else found

    def score_within(self, numas: frozenset[int] | None, lifted: Lifted = NOTHING_LIFTED) -> int | Rejection:
        """The score by the devices below some NUMA nodes."""
        if not self.node.devices.known:
            return 0
        desired = desired_devices(self.node.devices, self.requests)
        if isinstance(desired, Rejection):
            return desired
        return node_score(
            self.settings.strategy, self.view(numas, lifted), {type_: each.each for type_, each in desired.items()}
        )

    def view(self, numas: frozenset[int] | None = None, lifted: Lifted = NOTHING_LIFTED) -> DeviceView:
        """The devices that the pod may get."""
        return self.node.view(self.requests, numas, lifted)
