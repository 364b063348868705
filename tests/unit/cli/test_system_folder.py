"""The systems in a folder: which one commands mean."""

import os
import threading
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from cli.dev.kubeconfig import write_kubeconfig
from cli.main import koord
from cli.processes.free_ports import free_port
from cli.supervisor.cluster_folder import OtherCluster, folder_of
from cli.supervisor.cluster_record import ClusterRecord, record_cluster
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.log_access import log_of
from cli.supervisor.system_folder import (
    FolderTaken,
    NoSystem,
    announced,
    find_endpoints,
    find_system,
    record_database,
    systems_in,
    taken,
)
from shared.errors import KoordError


def endpoints(name: str) -> Endpoints:
    return Endpoints(f"postgresql://{name}", f"nats://{name}", os.getpid())


@pytest.fixture(autouse=True)
def _no_servers_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KOORD_POSTGRES", "KOORD_NATS"):
        monkeypatch.delenv(name, raising=False)


async def test_the_simulated_cluster_has_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = await folder_of(tmp_path, None)
    assert folder == tmp_path / "simulated"
    with taken(folder):
        assert await folder_of(tmp_path, None) == folder
        assert await folder_of(folder, None) == folder, "the folder of a system is used as it is"


async def test_a_folder_is_not_started_with_another_cluster_than_its_own(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, url=f"https://127.0.0.1:{free_port()}", ca=b"", user="ada", credentials="token")
    simulated, real = tmp_path / "simulated", tmp_path / "cluster-0a"
    record_cluster(real, ClusterRecord("0a-1", "https://kube", "/etc/kubeconfig of a"))
    with taken(simulated), taken(real):
        with pytest.raises(OtherCluster, match=r"nothing was started or written; leave out --kubeconfig"):
            await folder_of(simulated, kubeconfig)
        with pytest.raises(OtherCluster, match=r"describes cluster 0a-1 .*, not the simulated one: .*") as refused:
            await folder_of(real, None)
        assert f"start it with `koord up --kubeconfig '/etc/kubeconfig of a' --dir {real}`" in str(refused.value)
        assert await folder_of(real, kubeconfig) == real, "its API server does not respond: the gateway compares it"
    with pytest.raises(NoSystem, match=rf"start one with `koord up --kubeconfig '/etc/kubeconfig of a' --dir {real}`"):
        find_endpoints(real)


async def test_a_kubeconfig_that_cannot_be_read_ends_the_start_with_its_reason(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("clusters: [\n")
    system = tmp_path / "system"
    with taken(system):
        for root in (tmp_path, system):
            with pytest.raises(KoordError, match=r"kubeconfig cannot be used: .* line 2.*with `--kubeconfig`"):
                await folder_of(root, kubeconfig)


def test_the_system_that_runs_is_found_below_the_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "simulated", tmp_path / "cluster-0a"
    with pytest.raises(KoordError, match="no system runs"):
        find_endpoints(tmp_path)
    with pytest.raises(KoordError, match="no system has its data"):
        find_system(tmp_path)
    with taken(first), announced(first, endpoints("first")):
        assert find_endpoints(tmp_path).postgres == "postgresql://first"
    with taken(second), announced(second, endpoints("second")):
        assert find_endpoints(tmp_path).postgres == "postgresql://second"
        assert find_system(tmp_path) == second
    assert systems_in(tmp_path) == [second, first]


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_stopped_system_is_named_with_the_command_that_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_shared: bool
) -> None:
    above = tmp_path / "my system"
    above.mkdir()
    system = above / "cluster" if is_shared else above
    if is_shared:
        record_database(system, "koord_1")
    for command in (["top", "--once"], ["doctor"], ["evictions", "status"]):
        refused = CliRunner().invoke(koord, [*command, "--dir", str(system)])
        assert refused.exit_code == 1
        assert f"or start one with `koord up --dir '{above}'`" in refused.stderr
    monkeypatch.chdir(tmp_path)
    assert "or start one with `koord up`" in CliRunner().invoke(koord, ["doctor"]).stderr


def test_a_start_waits_for_a_command_that_reads_the_log_and_not_for_a_system(tmp_path: Path) -> None:
    reading, leave = threading.Event(), threading.Event()

    def read() -> None:
        with taken(tmp_path):
            reading.set()
            leave.wait()

    reader = threading.Thread(target=read)
    reader.start()
    reading.wait()
    threading.Timer(0.2, leave.set).start()
    with taken(tmp_path, patience_s=240), announced(tmp_path, endpoints("this")):
        reader.join()
        with pytest.raises(KoordError, match=r"a system runs in .* already"), taken(tmp_path, patience_s=240):
            pass


def _held(folder: Path, command: str) -> tuple[threading.Thread, threading.Event]:
    """Holds a folder, as another process does, until the event is set."""
    holds, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with taken(folder, reader=command):
            holds.set()
            leave.wait()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    holds.wait()
    return thread, leave


@pytest.mark.parametrize("reader", ["", "koord get nodes"])
def test_a_command_that_reads_is_named_and_not_called_a_system(tmp_path: Path, reader: str) -> None:
    thread, leave = _held(tmp_path, "koord events")
    words = rf"`koord events` \(process {os.getpid()}\) reads the log of the stopped system; end it, or wait"
    with pytest.raises(FolderTaken, match=words), taken(tmp_path, reader=reader):
        pass
    leave.set()
    thread.join()


def test_a_command_that_reads_waits_for_a_system_that_starts_and_reads_its_log(tmp_path: Path) -> None:
    (tmp_path / "postgres" / "data").mkdir(parents=True)
    thread, leave = _held(tmp_path, "")
    timer = threading.Timer(
        0.2, lambda: (tmp_path / "endpoints.json").write_bytes(msgspec.json.encode(endpoints("it")))
    )
    timer.start()
    with log_of(tmp_path) as postgres:
        assert postgres == "postgresql://it"
    leave.set()
    thread.join()


def test_a_system_that_starts_is_not_called_absent(tmp_path: Path) -> None:
    """koord top advised to start the system that was starting."""
    thread, leave = _held(tmp_path / "simulated", "")
    for command in (["top", "--once"], ["get", "pods"], ["evictions", "status"]):
        refused = CliRunner().invoke(koord, [*command, "--dir", str(tmp_path)])
        assert f"simulated: its system starts or stops (process {os.getpid()}); try again in" in refused.stderr
        assert (refused.exit_code, "start one with" in refused.stderr) == (1, False)
    leave.set()
    thread.join()
    thread, leave = _held(tmp_path / "simulated", "koord events")
    with pytest.raises(NoSystem, match="start one with"):
        find_endpoints(tmp_path)
    leave.set()
    thread.join()
    with pytest.raises(NoSystem, match="start one with"):
        find_endpoints(tmp_path)


def test_a_holder_that_has_not_written_its_number_yet_gets_none() -> None:
    assert "process" not in str(FolderTaken(Path("there"), "", ""))


def test_several_systems_need_a_choice(tmp_path: Path) -> None:
    first, second = tmp_path / "simulated", tmp_path / "cluster-0a"
    with taken(first), announced(first, endpoints("first")), taken(second), announced(second, endpoints("second")):
        for find in (find_endpoints, find_system):
            with pytest.raises(KoordError, match=f"choose one with --dir: {second}, {first}"):
                find(tmp_path)
        assert find_endpoints(first).postgres == "postgresql://first"
    with pytest.raises(KoordError, match="choose one"):
        find_system(tmp_path)
