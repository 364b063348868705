"""A real API server behind a proxy that can fail, used with the account of k8s/rbac only."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from cli.dev.kubeconfig import write_kubeconfig
from cli.dev.local_control_plane import Cluster
from services.gateway.kube_api.client import KubeApi
from tests.integration.gateway.effect_harness import EffectHarness
from tests.integration.gateway.fault_proxy import FaultProxy
from tests.support.pods import written_pod
from tests.support.prepared_folders import install_base

ACCOUNT = ("koordinator-system", "koordstream-gateway")

MakePod = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def cluster(kube_cluster: Cluster) -> Cluster:
    """The session's cluster with everything that `kubectl apply -k k8s/base` installs."""
    install_base(kube_cluster)
    return kube_cluster


@pytest.fixture
async def proxy(cluster: Cluster) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(cluster.url, cluster.ca_file).running() as proxy:
        yield proxy


@pytest.fixture
def kubeconfig(cluster: Cluster, proxy: FaultProxy, tmp_path: Path) -> Path:
    """The gateway's own account, through the proxy."""
    token = cluster.service_account_token(*ACCOUNT)
    ca = cluster.ca_file.read_bytes()
    return write_kubeconfig(tmp_path / "kubeconfig", url=proxy.url, ca=ca, user=ACCOUNT[1], credentials=token)


@pytest.fixture
async def api(kubeconfig: Path) -> AsyncIterator[KubeApi]:
    async with KubeApi(str(kubeconfig), timeout_s=2) as api:
        yield api


@pytest.fixture
def harness(api: KubeApi) -> EffectHarness:
    return EffectHarness(api)


@pytest.fixture
def make_pod(cluster: Cluster, namespace: str) -> MakePod:
    """`make_pod("web", **spec)` creates a pod in the test's namespace, as the administrator."""

    def make(name: str, *, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        body = written_pod(name, metadata=metadata, **spec)
        return cluster.api.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)

    return make
