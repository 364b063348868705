"""CPU sets: the accumulator, required bind policies, lists of CPUs."""

from cli.parity.domain import Domain
from services.scheduler.parity.cpuset import answer

DOMAIN = Domain(answer)
