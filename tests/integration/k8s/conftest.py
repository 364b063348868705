"""The cluster with k8s/base applied, and a namespace for custom resources."""

import secrets
from collections.abc import Iterator

import pytest

from cli.dev.local_control_plane import Cluster
from tests.integration.k8s.crd_inventory import Store
from tests.support.prepared_folders import install_base


@pytest.fixture(scope="module")
def installed(kube_cluster: Cluster) -> Cluster:
    install_base(kube_cluster)
    return kube_cluster


@pytest.fixture(scope="module")
def namespace_of_test(installed: Cluster) -> Iterator[str]:
    """One namespace for all tests of a file; names in it are never used again."""
    name = f"manifests-{secrets.token_hex(3)}"
    installed.create_namespace(name)
    yield name
    installed.delete_namespace(name)


@pytest.fixture
def store(installed: Cluster, namespace_of_test: str) -> Iterator[Store]:
    made = Store(installed.api, namespace_of_test)
    yield made
    made.clear()
