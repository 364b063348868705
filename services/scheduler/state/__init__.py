"""The scheduler's State: pods, nodes, reports and objects, folded from its own log and from those that it follows."""
