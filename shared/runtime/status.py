"""Status of a service, as its page `/statusz` has it; without the libraries that serve the page, so that commands that
read it start sooner.
"""

import msgspec

from shared.rejected_messages import RejectedMessages
from shared.unreachable import Unreachable

DISK_LOW, DISK_VERY_LOW = 0.2, 0.1
"""Free shares of the log's disk: an alarm is raised below the first, and below the second reports are dropped early."""


class Status(msgspec.Struct, frozen=True):
    """Status of a service.

    Attributes:
        state: starting, following, waiting-for-lock, leading, draining.
        lag: events that were announced and are not folded yet.
        events_per_s: folded over the last seconds.
        bus: NATS is connected; without it the service polls Postgres.
        refused: the refusal of NATS, of a login or a subject; empty as it should be.
        disk_free: free share of the log's disk, 0 to 1; None where it is not known.
        wal_disk_free: the same of the disk of the write-ahead log, where that is another.
        unreachable: servers that it cannot reach at the moment.
        halted: work that it does not do until somebody acts: what, why, and what to do.
        rejected: messages of the newest minutes that it rejected, by subject.
        counts: counters of this service, such as silent nodes.
        up_s: since the process began.
        cpu_s: seconds of a core that it has used.
        rss_bytes: memory that it holds.
    """

    service: str
    state: str
    epoch: int
    lag: int
    events_per_s: float
    folded: int
    positions: dict[str, int]
    bus: bool
    reloads: int = 0
    rebuilt: str = ""
    refused: str = ""
    disk_free: float | None = None
    wal_disk_free: float | None = None
    counts: dict[str, int] = {}
    unreachable: tuple[Unreachable, ...] = ()
    halted: tuple[str, ...] = ()
    rejected: tuple[RejectedMessages, ...] = ()
    up_s: float = 0.0
    cpu_s: float = 0.0
    rss_bytes: int = 0
