"""The PodMigrationJobs of a case: intents that the gateway carries out.

Source: spec/descheduler.md 3.1, 3.3.
"""

from typing import Any
from uuid import NAMESPACE_URL, uuid5

from shared.events import Draft
from shared.events.descheduling import EvictionCaseOpened, Victim
from shared.events.intents import ObjectDesired
from shared.kube.instants import duration_text
from shared.kube.resource_names import MIGRATION_JOBS

REASON, TRIGGER = "koordinator.sh/evict-reason", "koordinator.sh/evict-trigger"
CASE = "descheduler.koordstream/case"
"""Annotation of a job with the case that it belongs to."""


def job_name(case: str, number: int, pod_uid: str) -> str:
    """Returns the name of the job of one victim: a UUID, as upstream's, that the same case gives again."""
    return str(uuid5(NAMESPACE_URL, f"{case}/{number}/{pod_uid}"))


def jobs_of(case: EvictionCaseOpened, mode: str, ttl_ns: int) -> list[Draft]:
    """Returns the intents that make the jobs of a case, in the order of its victims.

    Args:
        mode: `ReservationFirst` or `EvictDirectly`.
        ttl_ns: 0 for no time-out.
    """
    return [
        Draft(
            ObjectDesired(resource=MIGRATION_JOBS, name=victim.job, body=_body(case, victim, mode, ttl_ns)),
            correlation=case.case,
        )
        for victim in case.victims
    ]


def _body(case: EvictionCaseOpened, victim: Victim, mode: str, ttl_ns: int) -> dict[str, Any]:
    namespace, _, name = victim.pod.partition("/")
    spec: dict[str, Any] = {
        "podRef": {"namespace": namespace, "name": name, "uid": victim.pod_uid},
        "mode": mode,
        **({"ttl": duration_text(ttl_ns)} if ttl_ns else {}),
    }
    annotations = {REASON: victim.reason, TRIGGER: case.plugin, CASE: case.case}
    return {"metadata": {"annotations": annotations}, "spec": spec}
