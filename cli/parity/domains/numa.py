"""NodeNUMAResource: what nodes offer, hints and their merging, filter, score, allocations and their annotations."""

from cli.parity.case_domain import Domain
from cli.parity.runners.scheduler.numa import answer

DOMAIN = Domain(answer)
