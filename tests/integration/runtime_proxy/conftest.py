"""Fixtures of the runtime proxy's tests."""

from tests.integration.runtime_proxy.containerd_node import containerd
from tests.integration.runtime_proxy.docker_node import docker

__all__ = ["containerd", "docker"]
