"""Limits of a workload: how many of its pods may move, or be unavailable, at once.

Source: spec/descheduler.md 3.6; upstream pkg/descheduler/controllers/util.
"""

IntOrPercent = int | str
"""A number, or a text with a percentage of the replicas such as `30%`."""


def workload_limit(replicas: int, value: IntOrPercent | None) -> int:
    """Returns the number of pods that a limit allows.

    A percentage is rounded down, 0 counts as 1, and nothing exceeds the replicas. Without a value: a tenth of more than
    10 replicas, else 2 of at least 4, else 1.

    Args:
        value: a valid number or percentage.
    """
    if value is None:
        found = replicas // 10 if replicas > 10 else 2 if replicas >= 4 else 1
    elif isinstance(value, str):
        found = replicas * int(value.removesuffix("%")) // 100
    else:
        found = value
    return min(found or 1, replicas)
