"""Cgroups of both versions: paths of pods and containers, the files that the agent writes, and their executor."""
