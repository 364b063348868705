"""The reasons for which quota keeps a pod from its node."""

from collections.abc import Mapping

from services.scheduler.state.pod_attempts_and_refusals import PluginReason

PLUGIN = "ElasticQuota"

EXCEEDED = "QuotaExceeded"
NON_PREEMPTIBLE = "NonPreemptibleQuotaExceeded"
PARENT = "ParentQuotaExceeded"
REJECTED = "QuotaRejected"
UNREACHABLE = "QuotaLedgerUnreachable"

CODE_OF_STAGE: Mapping[str, str] = {
    "quota": EXCEEDED,
    "nonPreemptible": NON_PREEMPTIBLE,
    "ancestor": PARENT,
    "rejected": REJECTED,
}
"""Stage of a charge that was refused -> reason code."""


def waits_for_quota(reasons: tuple[PluginReason, ...]) -> bool:
    """Returns True when a pod was refused by its quota, so that only capacity there can help."""
    return any(plugin == PLUGIN and code != UNREACHABLE for plugin, code in reasons)


def waits_for_rejected_quota(reasons: tuple[PluginReason, ...]) -> bool:
    """Returns True when a pod was refused because its quota is rejected, so that only a change of that quota can help."""
    return (PLUGIN, REJECTED) in reasons


def waits_for_ledger(reasons: tuple[PluginReason, ...]) -> bool:
    """Returns True when the ledger did not respond for the pod, which is tried again after a backoff."""
    return (PLUGIN, UNREACHABLE) in reasons
