"""Rejected messages of agents: counted, answered with the reason, and logged at a bounded rate."""

import asyncio
import logging

from prometheus_client import CollectorRegistry, Counter

from shared.agents import subjects
from shared.agents.decoding import BadMessage
from shared.agents.receipt import Receipt
from shared.ingest.agent_message_queue import Incoming
from shared.ingest.message_loop import Batch, Kind
from shared.rejected_messages import RejectionRecord

log = logging.getLogger(__name__)

PLURALS: dict[Kind, str] = {"report": "reports", "action": "actions", "inventory": "inventories"}

LOGGED_INTERVAL_S = 60.0
"""Seconds between two log lines about rejected messages of one node."""


class RejectionLog:
    """Counts rejected messages, and logs them at a bounded rate."""

    def __init__(self, kind: Kind, registry: CollectorRegistry, record: RejectionRecord) -> None:
        self._kind = kind
        kinds = PLURALS[kind]
        self._record = record
        self._logged: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}
        self.accepted = Counter(
            f"koord_ingest_{kinds}_accepted",
            f"{kinds.capitalize()} accepted, repeats included",
            ["way"],
            registry=registry,
        )
        self.refused = Counter(
            f"koord_ingest_{kinds}_rejected", f"{kinds.capitalize()} rejected", ["field"], registry=registry
        )

    def add(self, message: Incoming, error: BadMessage, batch: Batch, boot: str = "", seq: int = 0) -> None:
        """Adds a receipt with the reason, counts and records the rejection, and logs it at a bounded rate."""
        batch.answers.append((message, Receipt(self._kind, boot, seq, str(error))))
        self._note(message, error, "a message of an agent is rejected")

    def leave_out(self, message: Incoming, error: BadMessage) -> None:
        """Counts, records and logs in the same way a part of a message whose other parts are accepted."""
        self._note(message, error, "a part of a message of an agent is rejected")

    def _note(self, message: Incoming, error: BadMessage, text: str) -> None:
        self.refused.labels(error.field.partition("[")[0] or "message").inc()
        now_s = asyncio.get_running_loop().time()
        node = message.node
        self._record.add(subjects.subject(node, self._kind), str(error))
        if now_s - self._logged.get(node, -LOGGED_INTERVAL_S) < LOGGED_INTERVAL_S:
            self._unlogged[node] = self._unlogged.get(node, 0) + 1
            return
        more = self._unlogged.pop(node, 0)
        self._logged[node] = now_s
        log.warning(
            text,
            extra={
                "kind": self._kind,
                "node": node,
                "way": message.transport,
                "why": str(error),
                "not_logged_since": more,
            },
        )
