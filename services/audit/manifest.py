"""What the audit service may do, and where it is heard."""

from shared.runtime.manifest import Manifest

SUBJECT = "koord.event"
"""Before the subject of each event."""
READ = "koord.log.read"
"""Before the context whose old events are asked for."""

CONTEXTS = ("cluster", "scheduling", "quota", "slo", "metrics-*", "nodes-*")
"""Whose events it relays, beside its own."""


def stream_of(context: str) -> str:
    """The JetStream stream of a context: `metrics-0` -> `KOORD_EVENTS_METRICS_0`."""
    return f"KOORD_EVENTS_{context.replace('-', '_').upper()}"


MANIFEST = Manifest(
    name="audit",
    writes="audit",
    follows=(*CONTEXTS, "audit"),
    serves=(f"{READ}.*",),
    publishes=(f"{SUBJECT}.>",),
    streams=tuple(map(stream_of, (*CONTEXTS, "audit"))),
)
"""A context that comes to exist is added to `CONTEXTS`."""
