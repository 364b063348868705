"""What the quota ledger says of a pod, as a line of the pod's explainer."""

from shared.events import Event
from shared.events.quota import (
    PodAdmissionDecided,
    PodAttached,
    PodCharged,
    PodChargeReverted,
    PodMoved,
    PodReleased,
    PodResized,
)


def told(event: Event) -> str:
    """The event in words; empty for one that is none of the ledger's about a pod."""
    match event:
        case PodAttached():
            return f"it belongs to quota {event.quota}"
        case PodMoved():
            return f"it belongs to quota {event.quota} now, no more to {event.before}"
        case PodCharged():
            return f"quota {event.quota} is charged for it"
        case PodChargeReverted():
            return f"quota {event.quota} is charged for it no more ({event.reason}); it waits"
        case PodResized():
            return f"quota {event.quota} counts the amounts that it asks for now"
        case PodReleased():
            return f"quota {event.quota} counts it no more: {event.reason}"
        case PodAdmissionDecided() if event.ok:
            return f"cycle {event.cycle} may place it without a charge"
        case PodAdmissionDecided():
            short = ", ".join(sorted(event.shortfall)) or event.stage
            return f"cycle {event.cycle} may not place it: quota {event.quota or 'of its own'} is short of {short}"
        case _:
            return ""
