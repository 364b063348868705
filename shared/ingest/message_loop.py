"""The loop over agents' messages: decides on a time slice of them, appends once for all, then sends their receipts."""

import asyncio
from collections.abc import Callable
from typing import Literal

from prometheus_client import Counter

from shared.agents.receipt import Receipt
from shared.events import Draft
from shared.ingest.agent_message_queue import AgentInbox, Incoming
from shared.runtime.service import Runtime

SLICE_S = 0.05
"""Seconds that decisions may hold the event loop before their events are appended."""

GATHER_S = 0.1
"""Least seconds from one append to the next. Messages of this time share one transaction and one announcement, which
cost several times as much as a report."""

WAIT_S = 0.5

Kind = Literal["report", "action", "inventory"]


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

    def keep(self, message: Incoming, kind: Kind, boot: str, seq: int) -> None:
        """Adds the receipt of a message that waits: not all of it is in the log yet."""
        self.answers.append((message, Receipt(kind, boot, seq, waits=True)))


async def serve(
    runtime: Runtime, inbox: AgentInbox, decide: Callable[[Incoming, Batch], None], accepted: Counter
) -> None:
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
