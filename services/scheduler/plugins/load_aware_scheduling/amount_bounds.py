"""How large an amount may be: a report says what it likes, and what little is added to it must stay within int64."""

LARGEST = 1 << 61
"""RecordedEvent cases of upstream go up to here; it adds without a look at what an int64 holds."""


def bounded(amount: int) -> int:
    """The amount, or the nearest that a few of can be added up."""
    return min(max(amount, -LARGEST), LARGEST)
