"""The outside of a service: the classes through which its shell reads and appends the log and uses the bus.

Production uses Postgres and NATS. The fault simulation (`cli/dev/fault_simulation`) runs the same shells over others,
in memory.
"""

from collections.abc import Callable
from typing import NamedTuple

from shared.bus import Bus
from shared.log.database import Database
from shared.log.reader import LogReader
from shared.log.service_store import ServiceStore


class Adapters(NamedTuple):
    """Constructors of a service's connections to the outside, with the arguments of the production classes."""

    database: Callable[..., Database] = Database
    reader: Callable[[Database], LogReader] = LogReader
    store: Callable[[Database, str], ServiceStore] = ServiceStore
    bus: Callable[..., Bus] = Bus


PRODUCTION = Adapters()
