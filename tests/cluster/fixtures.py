"""The real Kubernetes API for tests.

kube_cluster   one cluster for the whole session, with the CRDs and k8s/base; tests leave it running and whole
namespace      a namespace of `kube_cluster` for one test; removed with its content afterwards
kube_nodes     a function that creates nodes in `kube_cluster`; removed afterwards
kube_client    a kubernetes_asyncio ApiClient on `kube_cluster`, as the administrator
own_cluster    a function that starts a cluster for one test, which may break it

Without the programs and without Go these tests skip with one line; with KOORD_REQUIRE_KUBE=1 they fail. Tests that use
them carry the marker `kube`.
"""

import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from kubernetes_asyncio import client, config

from cli.dev.binaries import NoNetwork, ProgramsMissing, provide
from cli.dev.fake_nodes import create_nodes, delete_nodes, node_object
from cli.dev.local_control_plane import Cluster
from tests.support.prepared_folders import copy_cluster

STARTERS = {"kube_cluster", "own_cluster"}
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")

StartCluster = Callable[..., Cluster]
MakeNodes = Callable[..., list[str]]

UNAVAILABLE = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the API before `-m` selects."""
    for item in items:
        if STARTERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("kube")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build missing programs before the first test, outside every test's time limit and with progress on the terminal."""
    if session.config.option.collectonly or not any(item.get_closest_marker("kube") for item in session.items):
        return
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    try:
        provide(*PROGRAMS, report=terminal.write_line if terminal else print)
    except (ProgramsMissing, NoNetwork) as error:
        session.config.stash[UNAVAILABLE] = str(error).splitlines()[0]


def require_programs(pytest_config: pytest.Config) -> None:
    """Skip, or fail under KOORD_REQUIRE_KUBE=1, when the programs could not be had."""
    if why := pytest_config.stash.get(UNAVAILABLE, None):
        if os.environ.get("KOORD_REQUIRE_KUBE") == "1":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)


@pytest.fixture(scope="session")
def kube_cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_programs(pytestconfig)
    with Cluster(copy_cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture
def namespace(request: pytest.FixtureRequest, kube_cluster: Cluster) -> Iterator[str]:
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    name = f"{slug}-{secrets.token_hex(3)}"
    kube_cluster.create_namespace(name)
    yield name
    kube_cluster.delete_namespace(name)


@pytest.fixture
def kube_nodes(kube_cluster: Cluster) -> Iterator[MakeNodes]:
    """`kube_nodes("a", "b", taints=[...], capacity={...}, ...)`: see `node_object` for the rest."""
    made: list[str] = []

    def make(*names: str, taints: tuple[dict[str, str], ...] = (), **fields: Any) -> list[str]:
        made.extend(names)
        return create_nodes(kube_cluster.api, [node_object(name, **fields) for name in names], taints=taints)

    yield make
    delete_nodes(kube_cluster.api, made)


@pytest.fixture
async def kube_client(kube_cluster: Cluster) -> AsyncIterator[client.ApiClient]:
    async with await config.new_client_from_config(str(kube_cluster.kubeconfig())) as api:
        yield api


@pytest.fixture
def own_cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartCluster]:
    """`own_cluster()` starts an empty one; `own_cluster(installed=True)` one with the CRDs and k8s/base."""
    require_programs(pytestconfig)
    with ExitStack() as started:

        def start(*, installed: bool = False, apiserver_flags: Sequence[str] = ()) -> Cluster:
            folder = copy_cluster(tmp_path_factory.mktemp("cluster")) if installed else None
            return started.enter_context(Cluster(folder, apiserver_flags))

        yield start
