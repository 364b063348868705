"""The descheduler's service: follows its contexts, and decides cycle after cycle."""

import logging

from services.descheduler.configuration.config_reload import OfferedConfig, config_drafts
from services.descheduler.retention_carry_forward import CARRY_FORWARD
from services.descheduler.service_manifest import COMPONENT, MANIFEST
from services.descheduler.settings import DeschedulerSettings
from services.descheduler.state.descheduler_state import FOLDED, DeschedulerState
from shared.domain.config_rejection import rejection_events
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.kube.instants import SECOND
from shared.runtime.config_file import ConfigFile
from shared.runtime.service import Runtime, Service

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 1.0
"""Interval of checks for changes, when nothing else wakes the loop."""


class Descheduler:
    """The descheduler while this replica is the writer of `descheduling`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings: DeschedulerSettings = runtime.settings
        self._began_ns = runtime.now_ns()
        self._file = ConfigFile(self._settings.config, self._settings.config_interval_s)

    @property
    def _state(self) -> DeschedulerState:
        state: DeschedulerState = self._runtime.state
        return state

    async def run(self) -> None:
        """Decides until the service drains."""
        runtime = self._runtime
        while not runtime.draining.is_set():
            if self._is_settled():
                await self._configure()
            await runtime.changed(POLL_INTERVAL_S)

    def _is_settled(self) -> bool:
        """Reports whether the log holds the whole cluster: before its ConfigMap is read, there would seem to be none."""
        if self._state.listed or self._state.config_digest:
            return True
        return self._runtime.now_ns() - self._began_ns > self._settings.debounce_s * SECOND

    async def _configure(self) -> None:
        """Records a changed configuration."""
        state, now_ns = self._state, self._runtime.now_ns()
        text = await self._file.read(now_ns)
        offered = None if text is None else OfferedConfig(self._file.source, text)
        if drafts := config_drafts(state, offered):
            for draft in drafts:
                if isinstance(draft.event, ConfigRejected):
                    log.warning(
                        "a configuration is rejected; the last good one stays", extra={"why": draft.event.reason}
                    )
            drafts += rejection_events(drafts, uid=state.config_map_uid, component=COMPONENT, now_ns=now_ns)
            await self._runtime.append(drafts, now_ns=now_ns)
            configuration = self._state.configuration
            for note in configuration.notes if configuration else ():
                log.warning(note, extra={"config": self._state.config_source})


async def lead(runtime: Runtime) -> None:
    """Decides for as long as this replica writes `descheduling`."""
    await Descheduler(runtime).run()


SERVICE = Service(
    manifest=MANIFEST,
    follows=FOLDED,
    emits=(WriterStarted, ConfigApplied, ConfigRejected, FieldsDesired, ObjectDesired),
    settings=DeschedulerSettings,
    new_state=DeschedulerState,
    lead=lead,
    carry_forward=CARRY_FORWARD,
)
"""The descheduler."""
