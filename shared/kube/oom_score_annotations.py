"""Annotations of a pod with the `oom_score_adj` of its processes. Source: spec/node-agent.md 4.10."""

OOM_SCORE_ADJ = "koordinator.sh/oom-score-adj"
"""The value of all containers."""

OOM_SCORE_ADJ_SPEC = "koordinator.sh/oom-score-adj-spec"
"""A JSON object: container -> value."""
