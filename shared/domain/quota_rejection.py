"""The words for a pod whose quota is rejected: the same in its condition, in the ledger's response and in every command."""


def waits_for_rejected(quota: str, reason: str) -> str:
    """Returns what a pod of a rejected quota waits for."""
    return f"its quota {quota} is rejected, and it waits: {reason}"
