"""Elastic quota: one level's shares, scaled minima, and whole trees over a history of objects."""

from cli.parity.case_domain import Domain
from cli.parity.runners.quota.runtime_cases import answer
from cli.parity.upstream.quirk_rules import rules_of
from cli.parity.upstream.quota.quirks import Quirk
from cli.parity.upstream.quota.runtime_cases import predicted

DOMAIN = Domain(
    answer,
    rules_of(predicted, Quirk),
    remarks=frozenset(
        {"flags", "calculatorInputs", "rootAllocatedDrifted", "weightSumOverflowsInt64", "differsFromExactFloor"}
    ),
    argued_share=0.3,
)
