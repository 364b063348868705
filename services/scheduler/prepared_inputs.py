"""The inputs of cycles under the recorded configuration: for the leader, for a standby, and for a replay."""

import logging
from typing import NamedTuple, TypeGuard

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.framework.config.decision_settings import DecisionSettings, in_force
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.scheduler_gates import scheduler_gates

log = logging.getLogger(__name__)


class Prepared(NamedTuple):
    """Cycle inputs, and what they were made by.

    Attributes:
        config_digest: of the configuration that was in force; a cache is not used under another.
        settings: the recorded settings that shape decisions.
    """

    cache: CycleInputs
    config_digest: str
    settings: DecisionSettings


def is_current(prepared: Prepared | None, view: SchedulerState) -> TypeGuard[Prepared]:
    """Reports whether inputs follow this State, under the configuration that it has in force."""
    return prepared is not None and prepared.cache.view is view and prepared.config_digest == view.config_digest


def prepare(view: SchedulerState) -> Prepared:
    """Makes the inputs anew; their caches are empty until they are settled."""
    configuration, settings = config_of(view), in_force(view.config_settings)
    for note in configuration.notes:
        log.warning(note, extra={"config": view.config_source})
    cache = CycleInputs(
        view,
        configuration.profiles,
        settings.shadow_scheduler,
        believes_annotations=settings.believes_annotations,
        by_sub_priority=settings.by_sub_priority,
        scheduler_gates=scheduler_gates(settings.feature_gates),
        backfill=settings.backfill,
    )
    return Prepared(cache, view.config_digest, settings)
