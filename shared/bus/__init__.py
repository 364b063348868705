"""The bus: one wrapper around NATS that carries new events quickly.

No guarantee depends on it; Postgres holds the log.
"""

from shared.bus.bus import Bus
from shared.bus.request import NoResponse, NotPermitted, Request

__all__ = ["Bus", "NoResponse", "NotPermitted", "Request"]
