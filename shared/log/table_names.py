"""Names of the tables that hold the log."""


def table_of(context: str) -> str:
    """Returns the partition of `events` that holds a context: `metrics-0` -> `events_metrics_0`.

    A role may read those of the contexts it follows, and `events` only when it may read all.
    """
    return "events_" + context.replace("-", "_")
