"""NodeNUMAResource: what nodes offer, hints and their merging, filter, score, allocations and their annotations."""

from cli.parity.domain import Domain
from services.scheduler.parity.numa import answer

DOMAIN = Domain(answer)
