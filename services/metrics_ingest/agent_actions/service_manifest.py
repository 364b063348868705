"""Permissions of action ingest: contexts, subjects, streams, intents."""

from shared.agents import subjects
from shared.domain.interference import INTERFERED, JOB_PREFIX
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.resource_names import MIGRATION_JOBS
from shared.runtime.intent_rights import EVICT, IntentRight
from shared.runtime.manifest import Manifest

MANIFEST = Manifest(
    name="action-ingest",
    writes="nodes-*",
    follows=("cluster", "nodes-*"),
    subscribes=(subjects.every_subject(subjects.ACTION),),
    publishes=(subjects.every_subject(subjects.REFUSED), subjects.every_subject(subjects.PODS)),
    intents=(
        EVICT,
        IntentRight(ObjectDesired, MIGRATION_JOBS, fields=("metadata.annotations", "spec"), name=f"{JOB_PREFIX}*"),
        IntentRight(FieldsDesired, "nodes", fields=(f"metadata.labels.{INTERFERED}",)),
    ),
)
