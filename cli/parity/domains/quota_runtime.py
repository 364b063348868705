"""Elastic quota: one level's shares, scaled minima, and whole trees over a history of objects."""

from cli.parity.domain import Domain
from services.quota_ledger.parity.runtime import answer

DOMAIN = Domain(answer, remarks=frozenset({"flags", "calculatorInputs", "rootAllocatedDrifted"}))
