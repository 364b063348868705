"""The anomaly detector of one node: it delays evictions until usage has been high for long enough.

Source: spec/descheduler.md 2.5; upstream pkg/descheduler/utils/anomaly.
"""

import msgspec
from msgspec.structs import replace

from services.descheduler.load_aware.arguments import AnomalyCondition


class Counts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Observations since the counters were last cleared: of all, of the normal, of the abnormal, and in a row."""

    total: int = 0
    normal: int = 0
    abnormal: int = 0
    normal_in_a_row: int = 0
    abnormal_in_a_row: int = 0


class Detector(msgspec.Struct, frozen=True, gc=False):
    """A detector.

    Attributes:
        timeout_ns, abnormalities, normalities: the condition with which it was made.
        expires_ns: in an anomaly: when it ends by itself.
        used_ns: when the node was last marked as abnormal.
    """

    timeout_ns: int
    abnormalities: int
    normalities: int
    is_anomalous: bool = False
    counts: Counts = Counts()
    expires_ns: int = 0
    used_ns: int = 0

    def now(self, now_ns: int) -> "Detector":
        """Returns the detector after what time alone changes: an anomaly that has expired ends."""
        ends = now_ns > self.expires_ns or self.counts.normal_in_a_row > self.normalities
        return _cleared(self) if self.is_anomalous and ends else self

    def mark_abnormal(self, now_ns: int) -> "Detector":
        """Returns the detector after an observation of high usage. In an anomaly that does not move its end."""
        before = self.now(now_ns)
        counts = before.counts
        counts = Counts(counts.total + 1, counts.normal, counts.abnormal + 1, 0, counts.abnormal_in_a_row + 1)
        if not before.is_anomalous and counts.abnormal_in_a_row > self.abnormalities:
            return replace(
                before, is_anomalous=True, counts=Counts(), expires_ns=now_ns + self.timeout_ns, used_ns=now_ns
            )
        return replace(before, counts=counts, used_ns=now_ns)

    def mark_normal(self, now_ns: int) -> "Detector":
        """Returns the detector after an observation of usage that is not high, or after an eviction."""
        before = self.now(now_ns)
        counts = before.counts
        counts = Counts(counts.total + 1, counts.normal + 1, counts.abnormal, counts.normal_in_a_row + 1, 0)
        if before.is_anomalous and counts.normal_in_a_row > self.normalities:
            return _cleared(before)
        return replace(before, counts=counts)

    def reset(self, now_ns: int) -> "Detector":
        """Returns the detector after a reset: it ends an anomaly, and changes nothing else (quirk of upstream)."""
        before = self.now(now_ns)
        return _cleared(before) if before.is_anomalous else before


def _cleared(detector: Detector) -> Detector:
    return replace(detector, is_anomalous=False, counts=Counts(), expires_ns=0)


class Detectors:
    """The detectors of one cycle: those of the State, and what the cycle does to them.

    Attributes:
        known: node -> detector, those that were forgotten left out.
    """

    def __init__(self, known: dict[str, Detector], timeout_ns: int, now_ns: int) -> None:
        """Forgets the detectors that were not used for longer than the timeout."""
        self._now_ns = now_ns
        self.known = {node: each for node, each in known.items() if now_ns - each.used_ns <= timeout_ns}

    def mark_abnormal(self, node: str, condition: AnomalyCondition) -> bool:
        """Marks a node whose usage is high; returns whether it is anomalous."""
        if condition.abnormalities == 1:
            return True
        made = Detector(condition.timeout_ns, condition.abnormalities, condition.normalities)
        after = self.known[node] = self.known.get(node, made).mark_abnormal(self._now_ns)
        return after.is_anomalous

    def mark_normal(self, node: str) -> None:
        """Marks a node after its evictions."""
        if node in self.known:
            self.known[node] = self.known[node].mark_normal(self._now_ns)

    def reset(self, node: str) -> None:
        """Resets the detector of a node whose usage is not high."""
        if node in self.known:
            self.known[node] = self.known[node].reset(self._now_ns)
