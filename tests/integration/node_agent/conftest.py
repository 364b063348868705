"""Fixtures of the agent's tests."""

from tests.integration.node_agent.cgroups import cgroups

__all__ = ["cgroups"]
