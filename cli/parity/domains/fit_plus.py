"""NodeResourcesFitPlus and ScarceResourceAvoidance: scores."""

from cli.parity.domain import Domain, Rule
from services.scheduler.parity.fit_plus import answer, crashes, has_overhead, is_vast, wrapped

DOMAIN = Domain(
    answer,
    (
        Rule("A pod with overhead is scored", has_overhead, crashes),
        Rule("A vast amount does not wrap around", is_vast, wrapped),
    ),
)
