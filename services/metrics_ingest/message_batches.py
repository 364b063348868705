"""Decides on messages in batches: a time slice of messages, one append for all of them, then their receipts."""

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, Counter

from services.metrics_ingest.inbox import Inbox, Incoming
from shared.agents.decoding import BadMessage
from shared.agents.receipt import Receipt
from shared.events import Draft
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

SLICE_S = 0.05
"""Seconds that decisions may hold the event loop before their events are appended."""

GATHER_S = 0.1
"""Least seconds from one append to the next. Messages of this time share one transaction and one announcement, which
cost several times as much as a report."""

WAIT_S = 0.5
LOGGED_INTERVAL_S = 60.0
"""Seconds between two log lines about rejected messages of one node."""

Kind = Literal["report", "action"]


class Batch:
    """The outcome of a slice of messages.

    Attributes:
        drafts: object -> events about it. A second decision on an object within a slice replaces the first.
        answers: receipts of the messages, in their order.
    """

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.drafts: dict[str, list[Draft]] = {}
        self.answers: list[tuple[Incoming, Receipt]] = []

    def accept(self, message: Incoming, kind: Kind, boot: str, seq: int) -> None:
        """Adds the receipt of an accepted message."""
        self.answers.append((message, Receipt(kind, boot, seq)))


class RejectionLog:
    """Counts rejected messages, and logs them at a bounded rate."""

    def __init__(self, kind: Kind, registry: CollectorRegistry) -> None:
        self._kind = kind
        self._logged: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}
        self.accepted = Counter(
            f"koord_ingest_{kind}s_accepted",
            f"{kind.capitalize()}s accepted, repeats included",
            ["way"],
            registry=registry,
        )
        self.refused = Counter(
            f"koord_ingest_{kind}s_rejected", f"{kind.capitalize()}s rejected", ["field"], registry=registry
        )

    def add(self, message: Incoming, error: BadMessage, batch: Batch, boot: str = "", seq: int = 0) -> None:
        """Adds a receipt with the reason, counts the rejection, and logs it at a bounded rate."""
        batch.answers.append((message, Receipt(self._kind, boot, seq, str(error))))
        self.refused.labels(error.field.partition("[")[0] or "message").inc()
        now_s = asyncio.get_running_loop().time()
        node = message.node
        if now_s - self._logged.get(node, -LOGGED_INTERVAL_S) < LOGGED_INTERVAL_S:
            self._unlogged[node] = self._unlogged.get(node, 0) + 1
            return
        more = self._unlogged.pop(node, 0)
        self._logged[node] = now_s
        log.warning(
            f"a {self._kind} is rejected",
            extra={"node": node, "way": message.transport, "why": str(error), "not_logged_since": more},
        )


async def serve(runtime: Runtime, inbox: Inbox, decide: Callable[[Incoming, Batch], None], accepted: Counter) -> None:
    """Decides on messages until the process drains. One without an answer by then is sent again.

    Args:
        decide: decides on one message, and adds its events and its receipt to the batch.
        accepted: counts accepted messages, by transport.
    """
    loop = asyncio.get_running_loop()
    while not runtime.draining.is_set():
        message = await inbox.first(WAIT_S)
        if message is None:
            continue
        began = loop.time()
        batch, ends = Batch(runtime.now_ns()), began + SLICE_S
        while message is not None:
            decide(message, batch)
            message = inbox.next() if loop.time() < ends else None
        drafts = [draft for receipt in batch.drafts.values() for draft in receipt]
        if drafts:
            await runtime.append(drafts, now_ns=batch.now_ns)
        else:
            # A receipt promises that the message is in the log: without an append, leadership is checked by itself.
            await runtime.check_lock()
        for answered, receipt in batch.answers:
            if receipt.accepted:
                accepted.labels(answered.transport).inc()
            await answered.answer(receipt)
        # Messages of this pause come in one slice.
        await asyncio.sleep(max(0.0, began + GATHER_S - loop.time()))
