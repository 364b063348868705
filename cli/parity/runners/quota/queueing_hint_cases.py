"""The `queueHint` cases: the scheduler's queue gate, with the ledger's log before and after the event of each query."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.runners.quota.recorded_ledger import RecordedLedger, pod_key
from services.scheduler.queue.quota_gate import QuotaGate
from services.scheduler.state.packed_pod_observation import first_observation
from services.scheduler.state.pod_attempts_and_refusals import Attempt, Decisions
from services.scheduler.state.pod_equivalence_class import PodClass, class_key, common_part
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_reason_codes import EXCEEDED, PLUGIN
from services.scheduler.state.quota_view import QuotaView
from shared.events import Event, RecordedEvent
from shared.events.log import ConfigApplied, WriterStarted
from shared.kube.pod import Pod


def hints(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns, per query, whether a pod that its quota has refused is tried again after the event."""
    return {"hints": ["Queue" if _wakes(given, query) else "QueueSkip" for query in given["queries"]]}


def _wakes(given: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    ledger = RecordedLedger.after(given)
    ledger.take({"type": "podAdd", "pod": query["pod"]})
    log = _Follower(ledger)
    key = pod_key(query["pod"])
    pod = msgspec.convert(query["pod"], Pod)
    attempt = Attempt(saw_quota=log.seq, reasons=((PLUGIN, EXCEEDED),))
    pod_record = PodRecord(
        key,
        name=key,
        observation=first_observation(1),
        attempts=1,
        decisions=Decisions(attempt=attempt),
        pod_class=class_of(pod),
    )
    gate = QuotaGate(log.view)
    gate.place(key, pod_record, 0)
    gate.changed()
    ledger.take(query["event"])
    log.read()
    gate.changed()
    return gate.place(key, pod_record, 0)[0] is not None


class _Follower:
    """The scheduler's view of quota, which follows a ledger's log."""

    def __init__(self, ledger: RecordedLedger) -> None:
        self._ledger, self._upto = ledger, 0
        self.view, self.seq = QuotaView(), 0
        self._apply(WriterStarted(epoch=1, release=""))
        self._apply(ConfigApplied(source="", digest="", text=ledger.settings.text()))
        self.read()

    def read(self) -> None:
        """Folds everything that the ledger has recorded since the last call."""
        for event in self._ledger.recorded[self._upto :]:
            self._apply(event)
        self._upto = len(self._ledger.recorded)

    def _apply(self, event: Event) -> None:
        self.seq += 1
        self.view.apply(RecordedEvent("quota", self.seq, event))


def class_of(pod: Pod) -> PodClass:
    """Returns the class of equal pods that a pod is of."""
    common = common_part(pod)
    return PodClass(class_key(common), common)
