"""The wait before a service that ended is started again."""

FIRST_S = 0.2
LONGEST_S = 10.0
HEALTHY_AFTER_S = 30.0


def next_delay(previous_s: float, lived_s: float) -> float:
    """0.2 s, doubled at each end up to 10 s; from the start again for a process that lived for 30 s."""
    if previous_s <= 0 or lived_s >= HEALTHY_AFTER_S:
        return FIRST_S
    return min(previous_s * 2, LONGEST_S)
