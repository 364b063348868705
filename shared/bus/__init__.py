"""The bus: one wrapper around NATS, the fast way to hear of what the log holds. Nothing rests on it."""

from shared.bus.bus import Bus
from shared.bus.request import NoResponse, NotPermitted, Request

__all__ = ["Bus", "NoResponse", "NotPermitted", "Request"]
