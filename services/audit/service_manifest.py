"""The contexts, subjects, streams and intents of the audit service."""

from shared.events.intents import ObjectDesired
from shared.runtime.intent_rights import IntentRight
from shared.runtime.manifest import Manifest

SUBJECT = "koord.event"
"""Prefix of the subject of each event."""
READ = "koord.log.read"
"""Prefix of requests for old events; the context follows."""

CONTEXTS = ("cluster", "scheduling", "quota", "slo", "descheduling", "metrics-*", "nodes-*", "devices-*")
"""Contexts whose events are relayed, besides its own."""

CHECKPOINT_CONFIG_MAP = "koordinator-system/koordstream-checkpoint"
"""The only ConfigMap that may carry the newest checkpoint out of the database."""
CHECKPOINT_FILE = "checkpoint.json"


def stream_of(context: str) -> str:
    """Returns the JetStream stream of a context: `metrics-0` -> `KOORD_EVENTS_METRICS_0`."""
    return f"KOORD_EVENTS_{context.replace('-', '_').upper()}"


MANIFEST = Manifest(
    name="audit",
    writes="audit",
    follows=(*CONTEXTS, "audit"),
    serves=(f"{READ}.*",),
    publishes=(f"{SUBJECT}.>",),
    streams=tuple(map(stream_of, (*CONTEXTS, "audit"))),
    intents=(
        IntentRight(ObjectDesired, "configmaps", fields=(f"data.{CHECKPOINT_FILE}",), name=CHECKPOINT_CONFIG_MAP),
    ),
)
"""Add new contexts to `CONTEXTS`."""
