"""LoadAwareScheduling: estimates, arguments, filter, score and the assign cache."""

from cli.parity.domain import Domain
from services.scheduler.parity.loadaware import answer

DOMAIN = Domain(answer)
