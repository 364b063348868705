"""Node reports: usage windows, percentiles, and the NodeMetric of each node; appended to `metrics-*`."""
