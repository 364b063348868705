"""DeviceShare: requests, hints, filter, score, allocations and their annotations, with Reservations that hold devices."""

from cli.parity.case_domain import Domain
from cli.parity.runners.scheduler.device import answer

DOMAIN = Domain(answer)
