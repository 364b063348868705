"""The scheduler's cases: recorded objects are folded as events, and answers are those of a scheduling cycle."""
