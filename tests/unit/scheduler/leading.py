"""The scheduler's shell without servers: `lead` runs on the logs of a world, and its State is folded as a follower
folds it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from services.scheduler.extender_server.extender_service import ExtenderService
from services.scheduler.service import lead
from services.scheduler.settings import SchedulerSettings
from shared.events import Draft, RecordedEvent
from shared.log.position import Position
from shared.log.projection import Projection
from tests.unit.scheduler.scheduler_with_ledger import Teams


class LeadingRuntime:
    """The parts of a runtime that `lead`, the charge client and the extender use.

    Attributes:
        during_charge: called while a cycle awaits the ledger, before the ledger decides.
        requests, responses: of the ledger, as they travelled.
    """

    def __init__(self, world: Teams, **settings: Any) -> None:
        self.settings = SchedulerSettings(**settings)
        self.prepared = None
        self.draining = asyncio.Event()
        self.bus = self.follower = self
        self.writer = SimpleNamespace(epoch=world.ledger.epoch + 1)
        self.during_charge: Callable[[], None] = lambda: None
        self.requests: list[bytes] = []
        self.responses: list[bytes] = []
        self._world = world
        self._projection = Projection(None, dict.fromkeys(("cluster", "scheduling", "quota")), world.view)  # type: ignore[arg-type]  # nothing is read
        world.fold = self.receive  # type: ignore[method-assign]  # what the world appends arrives through the follower
        self.resources = ExtenderService(self)  # type: ignore[arg-type]  # the parts that it uses

    @property
    def state(self) -> Any:
        return self._world.view

    def now_ns(self) -> int:
        self._world.wait(0.001)
        return self._world.now_ns

    def receive(self, record: RecordedEvent) -> None:
        """The follower receives a record."""
        self._projection.take(record.context, [record], Position(record.seq, b""))

    @contextmanager
    def hold(self) -> Iterator[None]:
        self._projection.hold()
        try:
            yield
        finally:
            self._projection.release()

    async def append(
        self, drafts: Sequence[Draft], *, now_ns: int, seen: dict[str, int] | None = None, config: str = ""
    ) -> list[RecordedEvent]:
        return self._world.record(drafts, now_ns, dict(self.state.positions) if seen is None else seen, config)

    async def handle(self, subject: str, handler: Callable[..., Any]) -> None:
        """Nobody asks for destinations here."""

    async def request(self, subject: str, data: bytes, **options: Any) -> bytes:
        self.requests.append(data)
        self.during_charge()
        response = await self._world.request(subject, data, **options)
        self.responses.append(response)
        return response

    async def caught_up(self, positions: Mapping[str, int]) -> None:
        """Returns at once: what the ledger records is folded before it responds."""
        assert all(self.state.positions.get(context, 0) >= seq for context, seq in positions.items())

    async def changed(self, _: float | None = None) -> bool:
        """Nothing changes any more: `lead` ends."""
        self.draining.set()
        return False

    def before_fold(self, _: object) -> None:
        """Nobody compares placements here."""


def lead_until_idle(runtime: LeadingRuntime) -> None:
    """Runs `lead` until a cycle has nothing to decide."""
    asyncio.run(lead(runtime))  # type: ignore[arg-type]  # the parts that it uses
