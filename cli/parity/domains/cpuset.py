"""CPU sets: the accumulator, required bind policies, lists of CPUs."""

from cli.parity.case_domain import Domain
from cli.parity.runners.scheduler.cpuset import answer

DOMAIN = Domain(answer)
