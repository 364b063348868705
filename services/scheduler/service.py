"""The scheduler's shell: wake when the state changed or a wait is over, decide a round, append it.

Source: architecture.md, "The core of a service". What is decided is in `round.py`, from what in `state.py`.
"""

import asyncio
import logging
from pathlib import Path

from services.scheduler.config import config_of
from services.scheduler.explanations import answers
from services.scheduler.index import Index
from services.scheduler.round import decide
from services.scheduler.serving.desk import Desk
from services.scheduler.serving.server import serving
from services.scheduler.settings import SchedulerSettings
from services.scheduler.shadow import Shadow
from services.scheduler.state import FOLDED, ClusterView
from services.scheduler.takeover import Offered, config_drafts
from shared.events.intents import EvictionAsked, FieldsDecided, ObjectDecided
from shared.events.log import ConfigRefused, ConfigTaken, WriterStarted
from shared.events.scheduling import PlacementCompared, PodNominated, PodPlaced, PodUnschedulable, RoundDecided
from shared.kube.instants import SECOND
from shared.service import Runtime, Service

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 5.0

SETTLED_AT_ONCE = 2000
"""Names the index looks at before other tasks of the process run: some 60 ms."""


async def lead(runtime: Runtime) -> None:
    """Decide round after round while this replica is the writer of `scheduling`."""
    settings: SchedulerSettings = runtime.settings
    view: ClusterView = runtime.state
    index: Index | None = None
    desk: Desk = runtime.beside
    shadow = Shadow(view, settings.shadow_scheduler) if settings.shadow_scheduler else None
    if shadow is not None:
        runtime.look(shadow.look)
    config_digest = ""
    file: Offered | None = None
    file_due_ns = 0
    while not runtime.draining.is_set():
        now_ns = runtime.now_ns()
        if settings.config and now_ns >= file_due_ns:
            file = await _read_file(settings.config, file)
            file_due_ns = now_ns + int(settings.config_every_s * SECOND)
        if drafts := config_drafts(view, file):
            await runtime.append(drafts, now_ns=now_ns)
            continue
        if index is None or view.config_digest != config_digest:
            config_digest = view.config_digest
            configuration = config_of(view)
            for note in configuration.notes:
                log.warning(note, extra={"config": view.config_source})
            if shadow is not None:
                shadow.judge_by(None)
            index = Index(view, configuration.profiles, settings.shadow_scheduler)
        while not index.settle(SETTLED_AT_ONCE):
            await asyncio.sleep(0)
        desk.index = index
        async with desk.turn:
            seen, now_ns = dict(view.positions), runtime.now_ns()
            drafts = decide(index, now_ns, settings.batch_size)
            if shadow is not None:
                shadow.judge_by(index, config_digest)
                drafts += shadow.take()
            drafts += answers(index, now_ns)
            if drafts:
                await runtime.append(drafts, now_ns=now_ns, seen=seen, config=config_digest)
        if drafts:
            taken_s = (runtime.now_ns() - now_ns) / SECOND
            await asyncio.sleep(min(max(settings.round_every_s - taken_s, 0.0), settings.round_every_s))
            continue
        await runtime.changed(_wait_s(index, runtime.now_ns()))
    desk.index = None
    if shadow is not None:
        runtime.look(None)
        while drafts := shadow.take():
            await runtime.append(drafts, now_ns=runtime.now_ns())


def _wait_s(index: Index, now_ns: int) -> float:
    """Until time alone lets a pod be tried, at most LONGEST_WAIT_S."""
    next_ns = index.queue.next_at_ns()
    if index.view.questions:
        return 1.0
    if next_ns is None:
        return LONGEST_WAIT_S
    return min(max((next_ns - now_ns) / SECOND, 0.001), LONGEST_WAIT_S)


async def _read_file(path: str, last: Offered | None) -> Offered | None:
    """The file as it is; the last one read while it cannot be read, for a file that is being replaced is gone for a moment."""
    try:
        return Offered(f"file {path}", await asyncio.to_thread(Path(path).read_text))
    except OSError as error:
        log.warning("the configuration file cannot be read", extra={"file": path, "error": str(error)})
        return last


SERVICE = Service(
    name="scheduler",
    writes="scheduling",
    follows=FOLDED,
    emits=(
        WriterStarted,
        FieldsDecided,
        ObjectDecided,
        RoundDecided,
        PodPlaced,
        PodNominated,
        PodUnschedulable,
        PlacementCompared,
        EvictionAsked,
        ConfigTaken,
        ConfigRefused,
    ),
    settings=SchedulerSettings,
    new_state=ClusterView,
    lead=lead,
    beside=serving,
)
