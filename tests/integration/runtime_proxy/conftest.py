"""Fixtures of the runtime proxy's tests."""

from tests.integration.runtime_proxy.containerd_node import containerd

__all__ = ["containerd"]
