"""Upper bound of amounts: a report may hold any number, and sums of a few of them must stay within int64."""

LARGEST = 1 << 61
"""Recorded cases of upstream go up to here; upstream adds without a check for int64."""


def bounded(amount: int) -> int:
    """The amount, or the nearest one of which a few can be added up within int64."""
    return min(max(amount, -LARGEST), LARGEST)
