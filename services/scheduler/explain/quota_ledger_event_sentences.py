"""Texts for the quota ledger's events about a pod, for `koord why pod`."""

from shared.domain.quota_charge import REJECTED
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


def describe(event: Event) -> str:
    """One sentence for an event; empty for one that is not the ledger's, or not about a pod."""
    match event:
        case PodAttached():
            return f"it belongs to quota {event.quota}"
        case PodMoved():
            return f"it belongs to quota {event.quota} now, no longer to {event.before}"
        case PodCharged():
            return f"quota {event.quota} is charged for it"
        case PodChargeReverted():
            return f"quota {event.quota} is no longer charged for it ({event.reason}); it waits"
        case PodResized():
            return f"quota {event.quota} counts the amounts that it requests now"
        case PodReleased():
            return f"quota {event.quota} no longer counts it: {event.reason}"
        case PodAdmissionDecided() if event.ok:
            return f"cycle {event.cycle} may place it without a charge"
        case PodAdmissionDecided(stage=stage) if stage == REJECTED:
            return f"cycle {event.cycle} may not place it: its quota {event.quota} is rejected"
        case PodAdmissionDecided():
            short = ", ".join(sorted(event.shortfall)) or event.stage
            return f"cycle {event.cycle} may not place it: quota {event.quota or 'of its own'} is short of {short}"
        case _:
            return ""
