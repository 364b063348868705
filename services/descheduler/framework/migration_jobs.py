"""The PodMigrationJobs of a case: intents that the gateway carries out.

Source: spec/descheduler.md 3.1, 3.3.
"""

from collections.abc import Iterable
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from services.descheduler.configuration.configuration import Configuration
from services.descheduler.configuration.plugin_kinds import MIGRATION_CONTROLLER
from services.descheduler.migration.pod_migration_job import (
    CASE,
    DESTINATION,
    EVICT_DIRECTLY,
    EVICT_REASON,
    EVICT_TRIGGER,
    RESERVATION_FIRST,
)
from shared.events import Draft
from shared.events.descheduling import EvictionCaseOpened, Victim
from shared.events.intents import ObjectDesired
from shared.kube.instants import SECOND, duration_text
from shared.kube.resource_names import MIGRATION_JOBS

DEFAULT_TTL_NS = 300 * SECOND


def job_name(case: str, number: int, pod_uid: str) -> str:
    """Returns the name of the job of one victim: a UUID, as upstream's, that the same case gives again."""
    return str(uuid5(NAMESPACE_URL, f"{case}/{number}/{pod_uid}"))


def jobs_of(case: EvictionCaseOpened, victims: Iterable[Victim], mode: str, ttl_ns: int) -> list[Draft]:
    """Returns the intents that make the jobs of victims of a case, in their order.

    Args:
        mode: `ReservationFirst` or `EvictDirectly`; a pod that has ended needs no place, and is evicted directly.
        ttl_ns: 0 for no time-out.
    """
    return [
        Draft(
            ObjectDesired(resource=MIGRATION_JOBS, name=victim.job, body=_body(case, victim, mode, ttl_ns)),
            correlation=case.case,
        )
        for victim in victims
    ]


def _body(case: EvictionCaseOpened, victim: Victim, mode: str, ttl_ns: int) -> dict[str, Any]:
    namespace, _, name = victim.pod.partition("/")
    spec: dict[str, Any] = {
        "podRef": {"namespace": namespace, "name": name, "uid": victim.pod_uid},
        "mode": EVICT_DIRECTLY if victim.ended else mode,
        **({"ttl": duration_text(ttl_ns)} if ttl_ns else {}),
    }
    annotations = {EVICT_REASON: victim.reason, EVICT_TRIGGER: case.plugin, CASE: case.case}
    if victim.destination:
        annotations[DESTINATION] = victim.destination
    return {"metadata": {"annotations": annotations}, "spec": spec}


def mode_and_ttl(configuration: Configuration, profile: str) -> tuple[str, int]:
    """Returns how the jobs of a profile move pods, and their time-out, by the arguments of its evict plugin."""
    args = next((each.args for each in configuration.profiles if each.name == profile), {})
    found = args.get(MIGRATION_CONTROLLER)
    return getattr(found, "default_mode", RESERVATION_FIRST), getattr(found, "default_ttl_ns", DEFAULT_TTL_NS)
