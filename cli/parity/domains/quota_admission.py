"""Elastic quota: room for pods, whose a pod is, over-use, preemption inside a quota, and what wakes a pod."""

from cli.parity.domain import Domain
from services.quota_ledger.parity.admission import answer

DOMAIN = Domain(answer, remarks=frozenset({"flags"}))
