"""The reasons for which quota keeps a pod from its node."""

from collections.abc import Mapping

from services.scheduler.state.pod_record import PluginReason

PLUGIN = "ElasticQuota"

EXCEEDED = "QuotaExceeded"
NON_PREEMPTIBLE = "NonPreemptibleQuotaExceeded"
PARENT = "ParentQuotaExceeded"
UNREACHABLE = "QuotaLedgerUnreachable"

CODE_OF_STAGE: Mapping[str, str] = {"quota": EXCEEDED, "nonPreemptible": NON_PREEMPTIBLE, "ancestor": PARENT}
"""What the ledger says was short -> code."""


def waits_for_quota(reasons: tuple[PluginReason, ...]) -> bool:
    """Whether a pod was refused by its quota, so that only room there can cure it."""
    return any(plugin == PLUGIN and code != UNREACHABLE for plugin, code in reasons)


def waits_for_ledger(reasons: tuple[PluginReason, ...]) -> bool:
    """Whether nobody answered for its quota, so that time alone lets it be tried again."""
    return (PLUGIN, UNREACHABLE) in reasons
