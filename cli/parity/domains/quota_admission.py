"""Elastic quota: room for pods, the quota of a pod, over-use, preemption inside a quota, and the events that wake a
pod.
"""

from cli.parity.case_domain import Domain
from cli.parity.runners.quota.admission_cases import answer
from cli.parity.upstream.quirk_rules import rules_of
from cli.parity.upstream.quota.admission_cases import predicted
from cli.parity.upstream.quota.quirks import Quirk

DOMAIN = Domain(answer, rules_of(predicted, Quirk), remarks=frozenset({"flags"}), argued_share=0.4)
