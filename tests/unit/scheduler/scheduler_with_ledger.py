"""A scheduler and a quota ledger without servers: the real fold, cycle, charge client and charge; only the bus is a
call."""

import asyncio
from types import SimpleNamespace
from typing import Any

from services.quota_ledger.decide.charge import charge
from services.quota_ledger.decide.decide_ledger_events import caught_up
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from services.scheduler.cycle.cycle import plan_cycle
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.quota.charge_client import ChargeClient
from shared.domain.quota_charge import decode_request, encode
from shared.events import Event, RecordedEvent
from shared.events.log import ConfigApplied, WriterStarted
from tests.support.quota_logs import quota
from tests.support.scheduling_world import World, node

__all__ = ["Teams", "quota"]


class Teams(World):
    """Nodes with room for everything, and quotas that have none."""

    def __init__(self, *quotas: Event, settings: LedgerSettings | None = None, cpu: str = "64", nodes: int = 2) -> None:
        super().__init__()
        self.settings = settings or LedgerSettings()
        self.ledger = LedgerState()
        for number in range(nodes):
            self.add_node(node(f"n{number}", cpu=cpu, memory="64Gi"))
        for each in quotas:
            self.observe(each)
        self._book(WriterStarted(epoch=1, release="0"), ConfigApplied(source="", digest="", text=self.settings.text()))
        self.read()

    def read(self, upto: int | None = None) -> None:
        """Both read everything, and the ledger books it."""
        super().read(upto)
        for context in ("cluster", "scheduling"):
            for record in self.logs[context][self.ledger.positions.get(context, 0) :]:
                self.ledger.apply(record)
        for record in caught_up(self.ledger, self.settings, self.now_ns):
            self._append(record.event)

    def cycle(self, batch: int = 256) -> list[RecordedEvent]:
        """One cycle as the service does it: decided, charged, room made, recorded."""
        cache = self.indexed()
        plan = plan_cycle(cache, self.now_ns, batch)
        if not plan.decisions:
            return []
        runtime = SimpleNamespace(
            now_ns=lambda: self.now_ns, bus=self, writer=SimpleNamespace(epoch=self.ledger.epoch + 1)
        )
        charge_client = ChargeClient(runtime, 1.0)  # type: ignore[arg-type]  # what of a runtime it uses
        seen = dict(self.view.positions)
        recorded = self.append_drafts(drafts_of(asyncio.run(charge_client.charge(plan, cache, seen))))
        self.read()
        return recorded

    async def request(self, _: str, data: bytes, **__: Any) -> bytes:
        """The bus: the ledger answers at once."""
        drafts, [answer] = charge(self.ledger, [decode_request(data)], self.settings.admission())
        self._book(*(draft.event for draft in drafts))
        return encode(answer)

    def used(self, name: str) -> int:
        """Milli-cores."""
        projection = self.ledger.projection
        return projection.trees[projection.tree_of[name]].quotas[name].used.get("cpu", 0)

    def _book(self, *events: Event) -> None:
        for event in events:
            record = self.append("quota", event, None)
            self.ledger.apply(record)
            self.fold(record)

    def _append(self, event: Event) -> None:
        self.fold(self.append("quota", event, None))
