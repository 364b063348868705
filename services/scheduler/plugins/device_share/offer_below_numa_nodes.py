"""The devices of a node as hints for the topology manager."""

from collections.abc import Hashable, Mapping, Sequence

from services.scheduler.plugins.device_share.device_usage import NOTHING_LIFTED, Lifted
from services.scheduler.plugins.device_share.filter_score_reserve_on_one_node import DeviceAdmission
from services.scheduler.plugins.device_share.numa_hints import device_hints
from services.scheduler.plugins.helper.numa_hint_provider_interface import MOST_NUMAS, ZoneHint
from services.scheduler.plugins.helper.rejections import Rejection


class DeviceOffer:
    """The offer of a node's devices to a class of pods, below each set of its NUMA nodes."""

    def __init__(self, key: Hashable, admission: DeviceAdmission, lifted: Lifted = NOTHING_LIFTED) -> None:
        """Begins with an admission.

        Args:
            lifted: devices of a Reservation that the pod uses.
        """
        self.key = key
        self._admission = admission
        self._lifted = lifted
        self._hints: Mapping[str, Sequence[ZoneHint]] | Rejection | None = None

    def hints(self) -> Mapping[str, Sequence[ZoneHint]] | Rejection:
        """Type of device -> hints; none where the places of devices are not known."""
        if self._hints is None:
            self._hints = self._computed()
        return self._hints

    def _computed(self) -> Mapping[str, Sequence[ZoneHint]] | Rejection:
        numas = self._admission.node.devices.numas
        if any(numa >= MOST_NUMAS for numa in numas):
            return {}
        return device_hints(self._admission, self._lifted)

    def try_within(self, numas: frozenset[int] | None) -> Rejection | None:
        """Tries to choose devices below some NUMA nodes."""
        found = self._admission.choose(numas, self._lifted)
        return found if isinstance(found, Rejection) else None
