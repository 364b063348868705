"""`koord uninstall` beside a system that still runs for the cluster."""

import os
from pathlib import Path

import msgspec

from cli.supervisor.cluster_record import ClusterRecord, recorded_clusters
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.system_folder import announced, find_running


def test_the_cluster_of_a_running_system_is_found_from_its_folder_and_from_the_one_above(tmp_path: Path) -> None:
    system = tmp_path / "cluster-1"
    system.mkdir()
    (system / "cluster.json").write_bytes(msgspec.json.encode(ClusterRecord("uid-1", "https://kube:6443")))
    with announced(system, Endpoints("postgres://", "nats://", pid=os.getpid())):
        for folder in (tmp_path, system):
            (running,) = find_running(folder)
            assert recorded_clusters(folder)[running].cluster == "uid-1"
