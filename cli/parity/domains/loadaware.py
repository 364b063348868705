"""LoadAwareScheduling: estimates, arguments, filter, score and the assign cache."""

from cli.parity.case_domain import Domain
from cli.parity.runners.scheduler.loadaware import answer

DOMAIN = Domain(answer)
