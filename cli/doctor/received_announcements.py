"""Announcements that arrive while the doctor looks: beacons of the writers, and messages that no writer sends."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping

from cli.doctor.check_services import ReceivedBeacon
from cli.doctor.finding import Finding
from cli.service_list import SERVICES, manifest
from shared.bus import Bus
from shared.log.announcements import (
    BadAnnouncement,
    Batch,
    Beacon,
    batch_subject,
    beacon_subject,
    is_chained,
    read_batch,
    read_beacon,
)
from shared.log.reader import LogReader
from shared.runtime.sharding import declared_name, is_sharded

COMPARED = 20
"""Newest batches of a context that are compared with the log."""


class ReceivedAnnouncements:
    """Announcements received on the subjects of each context.

    Attributes:
        beacons: context -> beacons of its writers.
        forged: context -> the reason of each message that no writer sends.
    """

    def __init__(self) -> None:
        self.beacons: dict[str, list[ReceivedBeacon]] = {}
        self.forged: dict[str, list[str]] = {}
        self._batches: dict[str, list[Batch]] = {}
        self._arrived = asyncio.Event()

    async def subscribe(self, bus: Bus, context: str) -> None:
        """Receives the announcements of a context."""
        await bus.subscribe(beacon_subject(context), self._receiver(context, self._receive_beacon))
        await bus.subscribe(batch_subject(context), self._receiver(context, self._receive_batch))

    async def wait_for(self, epochs: Mapping[str, int], within_s: float) -> None:
        """Waits until each of these contexts has sent a beacon of its epoch."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not all(
                    any(beacon.epoch == epoch for beacon in self.beacons.get(context, ()))
                    for context, epoch in epochs.items()
                ):
                    self._arrived.clear()
                    await self._arrived.wait()

    async def compare(self, reader: LogReader) -> None:
        """Adds the messages that the log does not bear out to `forged`."""
        for context in {*self.beacons, *self._batches}:
            head, epoch = await reader.head(context), await reader.epoch(context)
            for beacon in self.beacons.get(context, ()):
                if beacon.seq > head.seq or beacon.epoch > epoch:
                    self._forged(context, f"a beacon at seq {beacon.seq} of epoch {beacon.epoch}")
            for batch in self._batches.get(context, ())[-COMPARED:]:
                found = await reader.announced_digest(context, batch.last) if batch.last <= head.seq else None
                if found != batch.entries[-1].digest:
                    self._forged(context, f"a batch up to seq {batch.last} that is not in the log")

    def _receiver(self, context: str, receive: Callable[[str, bytes], None]) -> Callable[[bytes], None]:
        def received(data: bytes) -> None:
            try:
                receive(context, data)
            except BadAnnouncement as error:
                self._forged(context, str(error))

        return received

    def _receive_beacon(self, context: str, data: bytes) -> None:
        beacon: Beacon = read_beacon(context, data)
        self.beacons.setdefault(context, []).append(ReceivedBeacon(beacon.epoch, beacon.seq))
        self._arrived.set()

    def _receive_batch(self, context: str, data: bytes) -> None:
        batch = read_batch(context, data)
        if all(entry.data for entry in batch.entries) and not is_chained(batch):
            raise BadAnnouncement("a batch with wrong digests")
        self._batches.setdefault(context, []).append(batch)

    def _forged(self, context: str, reason: str) -> None:
        self.forged.setdefault(context, []).append(reason)


def about_forged(forged: Mapping[str, list[str]]) -> Iterator[Finding]:
    """Names the login that sends messages which no writer sends: only the writers of a context may publish on its
    subjects.
    """
    for context, reasons in sorted(forged.items()):
        logins = logins_of_writers(context)
        yield Finding(
            "error",
            "credentials",
            f"the login {' or '.join(f'koord.{login}' for login in logins)} publishes {len(reasons)} messages about "
            f"{context} that its writer does not send: {reasons[0]}",
            f"no service believes them; find who uses the login, then `koord credentials rotate DIR {logins[0]}`",
        )


def logins_of_writers(context: str) -> list[str]:
    """Returns the logins that may write a context: `metrics-0` -> `metrics-ingest-0`; `cluster` has two, the gateway's
    and the simulator's.
    """
    shard = f"-{context.rpartition('-')[2]}" if is_sharded(declared_name(context)) else ""
    return [f"{one.name}{shard}" for one in map(manifest, SERVICES) if one.writes == declared_name(context)]
