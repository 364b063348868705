"""The audit service: a relay for each context, a signed checkpoint each minute, and requests for old events.

Source: architecture.md, "For outsiders: the event stream".
"""

import asyncio
import logging
from datetime import timedelta
from functools import partial
from pathlib import Path

from prometheus_client import Counter, Gauge

from services.audit.checkpoint_signing import Signer
from services.audit.decide_signed_checkpoint import checkpoint_drafts, next_checkpoint_ns
from services.audit.events_older_than_stream_requests import read
from services.audit.last_signed_checkpoint_state import AuditState
from services.audit.log_to_stream_relay import StreamRelay
from services.audit.retention_carry_forward import CARRY_FORWARD
from services.audit.service_manifest import CONTEXTS, MANIFEST, READ
from services.audit.settings import AuditSettings
from services.audit.signed_checkpoint_files import text_of, write_files
from shared.bus.jetstream import Streams
from shared.events.audit import CheckpointSigned
from shared.events.intents import ObjectDesired
from shared.events.log import WriterStarted
from shared.kube.instants import SECOND
from shared.log.checkpoint import Checkpoint, statement_of, store
from shared.log.database import FAILURES
from shared.runtime.service import Runtime, Service, SubjectResponder
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)


class Audit:
    """The service while this replica is the writer of `audit`."""

    def __init__(self, runtime: Runtime, signer: Signer) -> None:
        self._runtime = runtime
        self._settings: AuditSettings = runtime.settings
        self._signer = signer
        self._kept = timedelta(days=self._settings.checkpoint_days)
        self._saved_seq = 0  # of the last checkpoint that is in the table and the folder
        streams = Streams(runtime.bus)
        self._relays = {
            context: StreamRelay(
                context,
                self._settings,
                runtime.log,
                streams,
                head=partial(self._head, context),
                now_ns=runtime.now_ns,
            )
            for context in runtime.service.follows
        }
        registry = runtime.metrics.registry
        self._relayed = Counter(
            "koord_audit_relayed_events", "Events stored in the stream", ["context"], registry=registry
        )
        self._lag = Gauge(
            "koord_audit_relay_lag_events", "Events not in the stream yet", ["context"], registry=registry
        )
        self._rebuilds = Counter(
            "koord_audit_stream_rebuilds", "Streams purged and filled again", ["context"], registry=registry
        )
        self._counted = dict.fromkeys(self._relays, (0, 0))

    @property
    def _state(self) -> AuditState:
        state: AuditState = self._runtime.state
        return state

    async def run(self) -> None:
        """Relays and signs until the service drains."""
        relays = [asyncio.create_task(relay.run(), name=f"relay {name}") for name, relay in self._relays.items()]
        work = [asyncio.create_task(self._sign(), name="sign"), asyncio.create_task(self._measure(), name="wake")]
        draining = asyncio.create_task(self._runtime.draining.wait())
        try:
            done, _ = await asyncio.wait({*relays, *work, draining}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
            await work[0]  # an append under way is not cancelled: it would leave the head in doubt
        finally:
            await cancel_and_wait(*relays, *work, draining)

    async def _measure(self) -> None:
        while not self._runtime.draining.is_set():
            await self._runtime.changed(1)
            for name, relay in self._relays.items():
                if self._lag_of(name):
                    relay.wake()
                relayed, rebuilds = self._counted[name]
                self._relayed.labels(name).inc(relay.relayed - relayed)
                self._rebuilds.labels(name).inc(relay.rebuilds - rebuilds)
                self._lag.labels(name).set(self._lag_of(name))
                self._counted[name] = relay.relayed, relay.rebuilds
            self._runtime.counts.update(
                relayed=sum(relay.relayed for relay in self._relays.values()),
                behind=sum(self._lag_of(name) for name in self._relays),
                rebuilds=sum(relay.rebuilds for relay in self._relays.values()),
            )

    def _head(self, context: str) -> int:
        return self._state.positions.get(context, 0)

    def _lag_of(self, context: str) -> int:
        return max(0, self._head(context) - self._relays[context].published_seq)

    async def _sign(self) -> None:
        """Signs a checkpoint at each interval; one that could not be saved is saved with the next."""
        while not self._runtime.draining.is_set():
            now_ns = self._runtime.now_ns()
            if now_ns >= next_checkpoint_ns(self._state, self._settings.checkpoint_interval_s):
                await self._checkpoint(now_ns)
            if self._state.signed_seq != self._saved_seq:
                await self._save(self._state)
            due_s = (next_checkpoint_ns(self._state, self._settings.checkpoint_interval_s) - now_ns) / SECOND
            try:
                async with asyncio.timeout(max(0.05, due_s)):
                    await self._runtime.draining.wait()
            except TimeoutError:
                continue

    async def _checkpoint(self, now_ns: int) -> None:
        heads = {name: head for name, head in self._runtime.follower.positions.items() if head.digest}
        seen = {name: head.seq for name, head in heads.items()}
        signed = self._signer.sign(statement_of(self._settings.source, now_ns, heads))
        event = CheckpointSigned(
            signer=self._signer.id,
            statement=signed.statement,
            public_key=signed.public_key,
            signature=signed.signature,
        )
        drafts = checkpoint_drafts(event, self._settings.config_map, text_of(signed))
        await self._runtime.append(drafts, now_ns=now_ns, seen=seen)

    async def _save(self, state: AuditState) -> None:
        """Saves the newest checkpoint outside the log; a saved one is not written again."""
        assert state.signed is not None
        signed, seq, at_ns = state.signed, state.signed_seq, state.signed_at_ns
        checkpoint = Checkpoint(signed.statement, signed.public_key, signed.signature)
        try:
            if self._settings.checkpoint_dir:
                folder = Path(self._settings.checkpoint_dir)
                await asyncio.to_thread(write_files, folder, checkpoint, at_ns, kept=self._kept)
            await store(self._runtime.database, seq, at_ns, checkpoint, kept=self._kept)
        except FAILURES as error:
            log.warning("cannot save the checkpoint", extra={"event": f"audit/{seq}", "error": repr(error)})
        else:
            self._saved_seq = seq


async def lead(runtime: Runtime) -> None:
    """Relays and signs while this replica is the writer of `audit`."""
    settings: AuditSettings = runtime.settings
    await Audit(runtime, Signer.load(Path(settings.key))).run()


async def answer(runtime: Runtime, subject: str, data: bytes) -> bytes:
    """Responds with old events of the context in the subject."""
    settings: AuditSettings = runtime.settings
    return await read(runtime.log, settings.source, subject.removeprefix(f"{READ}."), data, runtime.rejections)


SERVICE = Service(
    manifest=MANIFEST,
    follows={**dict.fromkeys(CONTEXTS, ()), "audit": (CheckpointSigned,)},
    emits=(CheckpointSigned, ObjectDesired, WriterStarted),
    settings=AuditSettings,
    new_state=AuditState,
    lead=lead,
    carry_forward=CARRY_FORWARD,
    serves={f"{READ}.*": SubjectResponder(answer)},
)
