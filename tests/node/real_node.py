"""A real node for tests: a kubelet of v1.36.3 with containerd and runc, as `cli.dev.node` starts it.

real_node    a RealNode with a cluster of its own (`real_node.cluster`), the CRDs of k8s/crds and what k8s/base and
             k8s/webhooks install; for all tests of one module, which leave it running

The machine's cpu and memory are the node's. Containers run IMAGE, one program that waits, burns, holds memory and
answers requests (tests/node/tools/workload); `tests.node.pod_bodies` makes bodies of pods for it. A pod's cgroup is
`real_node.tree.of_pod(uid, controller)`.

Needs root, cgroup v1 and the programs, which are built once. Without, these tests skip with one line; with
KOORD_REQUIRE_NODE=1 they fail. Tests that use it carry the markers `kube` and `node`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.dev.binaries import provide
from cli.dev.local_control_plane import Cluster
from cli.dev.node.kubelet_node import NAMES, RealNode, check_machine
from shared.errors import KoordError
from tests.cluster.fixtures import require_programs
from tests.support.prepared_folders import copy_cluster

K8S = Path(__file__).parents[2] / "k8s"
NODE = "worker"

UNAVAILABLE = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that need a node before `-m` selects."""
    for item in items:
        if "real_node" in getattr(item, "fixturenames", ()):
            item.add_marker("kube")
            item.add_marker("node")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds missing programs before the first test, outside of time limits and with progress on the terminal."""
    if session.config.option.collectonly or not any(item.get_closest_marker("node") for item in session.items):
        return
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    try:
        check_machine()
        provide(*NAMES, report=terminal.write_line if terminal else print)
    except KoordError as error:
        session.config.stash[UNAVAILABLE] = str(error).splitlines()[0]


def require_node(pytest_config: pytest.Config) -> None:
    """Skips, or fails under KOORD_REQUIRE_NODE=1, when this machine cannot be a node."""
    if why := pytest_config.stash.get(UNAVAILABLE, None):
        if os.environ.get("KOORD_REQUIRE_NODE") == "1":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)


@pytest.fixture(scope="module")
def real_node(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    require_programs(pytestconfig)
    require_node(pytestconfig)
    with Cluster(copy_cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        cluster.apply(K8S / "webhooks")
        with RealNode(cluster, NODE, tmp_path_factory.mktemp("node")) as node:
            yield node
