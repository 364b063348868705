"""Reservations: matching, the correction of nodes, fit, nomination and score, and reserve pods."""

from cli.parity.case_domain import Domain
from cli.parity.runners.scheduler.reservation import answer
from cli.parity.upstream.quirk_rules import rules_of
from cli.parity.upstream.reservation.cases import predicted
from cli.parity.upstream.reservation.quirks import Quirk

DOMAIN = Domain(
    answer,
    rules_of(predicted, Quirk),
    remarks=frozenset({"postFilter", "podRequested", "rAllocated"}),
    argued_share=0.65,  # owners of Reservations for one pod are in most cases, which the records count twice
)
