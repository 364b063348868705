"""Permissions of metrics ingest: contexts, subjects, streams, intents."""

from shared.agents import subjects
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.resource_names import NODE_METRICS
from shared.runtime.intent_rights import IntentRight
from shared.runtime.manifest import Manifest

MANIFEST = Manifest(
    name="metrics-ingest",
    writes="metrics-*",
    follows=("cluster", "metrics-*"),
    subscribes=(subjects.every_subject(subjects.REPORT),),
    publishes=(subjects.every_subject(subjects.REFUSED), subjects.every_subject(subjects.SLO)),
    streams=(subjects.SLO_STREAM,),
    intents=(
        IntentRight(ObjectDesired, NODE_METRICS),
        IntentRight(FieldsDesired, NODE_METRICS, "status", ("status",)),
        IntentRight(ObjectDesired, NODE_METRICS, deletes=True),
    ),
)
