"""The running members of gangs, for revocation: a gang that runs with fewer than its minimum only holds its nodes."""

from collections.abc import Collection, Mapping

from services.quota_ledger.pods.pod_table import PodEntry
from shared.domain.gang import GangSettings, gangs_that_end_together


class RunningGangs:
    """The gangs that pods declare, and their members that count on nodes.

    Attributes:
        running: id -> uids of the members that are on a node or charged, and neither ended nor terminating.
    """

    def __init__(
        self,
        entries: Mapping[str, PodEntry],
        pod_groups: Mapping[str, GangSettings | None],
        leaving: Collection[str] = (),
    ) -> None:
        """Reads all pods once.

        Args:
            pod_groups: id of a gang -> the settings of its PodGroup; they replace those that members declare.
            leaving: uids of members whose eviction is requested; they run no more.
        """
        self._settings: dict[str, GangSettings | None] = {}
        self.running: dict[str, list[str]] = {}
        for uid, entry in sorted(_members(entries), key=lambda each: (each[1].since, each[0])):
            pod = entry.observed
            assert pod is not None, "a pod without an object has no gang"
            if self._settings.get(pod.gang) is None:  # of the members, the first that declares any
                self._settings[pod.gang] = pod.gang_settings
            is_charged = entry.attached is not None and entry.attached.charged
            if (pod.bound or is_charged) and not pod.ended and not pod.terminating and uid not in leaving:
                self.running.setdefault(pod.gang, []).append(uid)
        self._settings.update(pod_groups)

    def settings_of(self, gang: str) -> GangSettings | None:
        """Returns the settings in force of a gang; None while it has none, and its pods are like others."""
        return self._settings.get(gang)

    def spare(self, gang: str) -> int:
        """Returns how many running members a gang has beyond its minimum."""
        settings = self.settings_of(gang)
        return max(len(self.running[gang]) - (settings.minimum if settings is not None else 0), 0)

    def group_of(self, gang: str) -> tuple[str, ...]:
        """Returns the ids of the gangs with which a gang ends, its own included."""
        return gangs_that_end_together(gang, self.settings_of)

    def members_of(self, group: tuple[str, ...]) -> list[str]:
        """Returns the uids of the running members of the gangs of a group."""
        return [uid for gang in group for uid in self.running.get(gang, ())]


def _members(entries: Mapping[str, PodEntry]) -> list[tuple[str, PodEntry]]:
    return [(uid, entry) for uid, entry in entries.items() if entry.observed is not None and entry.observed.gang]
