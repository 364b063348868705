"""Audit of a quota ledger's whole log, at the end of a test."""

from collections.abc import Iterator
from typing import NamedTuple

from cli.quota.rebuild_state import Folded
from services.quota_ledger.accounting.verify_invariants_by_replay import VerifyReport, verify
from shared.domain.amounts import exceeding
from shared.events import RecordedEvent
from shared.events.quota import PodCharged
from shared.kube.elastic_quota import RESERVED


class Audit(NamedTuple):
    """Result of the audit.

    Attributes:
        verified: the trial balance after each event.
        exceeded: charges requested by the scheduler after which the quota used more than its runtime at that time.
        charged: uids of the pods that are charged at the end.
    """

    verified: VerifyReport
    exceeded: list[RecordedEvent]
    charged: set[str]


def audit(folded: Folded) -> Audit:
    """Folds the ledger's own log again, and compares use with the runtime after each charge."""
    projection = folded.settings.new_state().projection
    exceeded: list[RecordedEvent] = []

    def watched() -> Iterator[RecordedEvent]:
        for record in folded.own:
            event = record.event
            before = projection.pods.get(event.pod_uid) if isinstance(event, PodCharged) and event.epoch else None
            yield record
            # A pod that is charged already only gets a newer cycle; the default group has no runtime.
            if before and not before.charged and before.quota not in RESERVED:
                info = projection.trees[before.tree].quotas[before.quota]
                if exceeding(info.used, info.runtime):
                    exceeded.append(record)

    verified = verify(watched(), projection)
    return Audit(verified, exceeded, {uid for uid, held in projection.pods.items() if held.charged})
