"""OpenTelemetry spans, if `KOORD_OTLP_ENDPOINT` names an endpoint; without one nothing is imported and a span costs
nothing.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

_tracer: Any = None


def set_up(service: str, endpoint: str) -> None:
    """Exports spans to an OTLP endpoint (extra `tracing`)."""
    global _tracer  # noqa: PLW0603  one process, one tracer
    if not endpoint:
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": f"koord-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    _tracer = provider.get_tracer("koordstream")


def span(name: str, **attributes: str | float) -> AbstractContextManager[Any]:
    """Returns a span around a block."""
    if _tracer is None:
        return nullcontext()
    return _tracer.start_as_current_span(name, attributes=attributes)  # type: ignore[no-any-return]
