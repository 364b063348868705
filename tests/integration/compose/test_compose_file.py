"""compose.yaml agrees with the manifests: services, logins, settings; and Docker Compose accepts it, where it is
installed.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.commands.run import PROGRAMS
from cli.service_list import CONTEXTS, DEVICE_DAEMON, RUNTIME_PROXY, SERVICES, load
from services.node_agent.settings import AgentEnvironment, AgentSettings
from shared.runtime.service import Environment
from shared.settings import Settings, variable_of

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "compose.yaml"
OF_IMAGES = {"PGDATA", "POSTGRES_INITDB_ARGS"}
ONE_SHOT = {"volumes", "migrate", "koord"}
SERVERS = {"nats", "postgres"}

Plain = dict[str, Any]


@pytest.fixture(scope="module")
def compose() -> Plain:
    found: Plain = yaml.safe_load(COMPOSE.read_text())
    return found


def running(compose: Plain) -> dict[str, Plain]:
    """Returns the containers that run one of our services: name -> definition."""
    return {name: one for name, one in compose["services"].items() if one.get("command", [""])[0] == "run"}


def variables_of(settings: type[Settings], service: str = "") -> set[str]:
    return {variable_of(service, field) for field in settings.__struct_fields__}


def test_every_service_has_a_container_and_nothing_else_does(compose: Plain) -> None:
    assert {one["command"][1] for one in running(compose).values()} == set(PROGRAMS) - {DEVICE_DAEMON, RUNTIME_PROXY}
    assert set(compose["services"]) == {*running(compose), *ONE_SHOT, *SERVERS}


def test_every_context_has_one_writer_at_most_in_each_profile(compose: Plain) -> None:
    writers: dict[tuple[str, str], str] = {}
    for name, one in running(compose).items():
        if one["command"][1] not in SERVICES:
            continue
        for profile in one.get("profiles", ["cluster", "simulator"]):
            context = load(one["command"][1]).writes
            assert writers.setdefault((profile, context), name) == name
    assert {context for profile, context in writers if profile == "simulator"} == set(CONTEXTS)
    assert {context for profile, context in writers if profile == "cluster"} == set(CONTEXTS)


def test_every_variable_that_is_set_exists(compose: Plain) -> None:
    for name, one in compose["services"].items():
        given = set(one.get("environment", {}))
        if name in SERVERS:
            assert given <= OF_IMAGES
            continue
        known = variables_of(Environment) | {"KOORD_STATUSZ"}
        service = one["command"][1] if one.get("command", [""])[0] == "run" else ""
        if service == "node-agent":
            known = variables_of(AgentEnvironment) | variables_of(AgentSettings, service)
        elif service:
            known |= variables_of(load(service).settings, service)
        assert given <= known, f"{name} sets variables that no service reads: {given - known}"


def test_every_service_has_its_own_login_and_no_other(compose: Plain) -> None:
    for name, one in {**running(compose), "migrate": compose["services"]["migrate"]}.items():
        login = {"migrate": "owner", "node-agent": "${KOORD_NODE:-node-0000}"}.get(name, name)
        files = [entry["path"] for entry in one["env_file"]]
        folder = "nodes" if name == "node-agent" else "env"
        assert files == [f"${{KOORD_CREDENTIALS:-./credentials}}/{folder}/{login}.env"]
        sources = [
            entry["source"] for entry in one["volumes"] if isinstance(entry, dict) and "credentials" in entry["source"]
        ]
        assert sources == [f"${{KOORD_CREDENTIALS:-./credentials}}/logins/{login}"]


def test_no_container_is_root_or_writes_its_file_system_or_has_capabilities(compose: Plain) -> None:
    for name, one in compose["services"].items():
        assert one["user"] == "${KOORD_USER:-10001:10001}", name
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in one, name


def test_long_running_containers_have_a_health_check_and_only_the_broker_is_published(compose: Plain) -> None:
    for name, one in compose["services"].items():
        assert ("healthcheck" in one) == (name not in ONE_SHOT), name
        assert ("ports" in one) == (name == "nats"), name
        assert re.fullmatch(r"\$\{KOORD_(NATS_|POSTGRES_)?IMAGE:-[a-z0-9:.-]+\}", one["image"]), name
    assert compose["networks"]["inside"] == {"internal": True}
    outside = {name for name, one in compose["services"].items() if "outside" in one.get("networks", [])}
    assert outside == {"nats", "gateway"}


def test_the_image_has_the_extras_of_every_service(compose: Plain) -> None:
    import tomllib

    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    (default,) = re.findall(r"^ARG EXTRAS=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert f"${{KOORD_EXTRAS:-{default}}}" == compose["services"]["volumes"]["build"]["args"]["EXTRAS"]
    assert set(default.split(",")) <= extras
    assert {service for service in PROGRAMS if service in extras} <= set(default.split(","))


def test_docker_compose_accepts_the_file_of_a_fresh_clone() -> None:
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no `docker compose` on this machine")
    for profile in ("simulator", "cluster", "*"):
        command = [docker, "compose", "--file", str(COMPOSE), "--profile", profile, "config", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
