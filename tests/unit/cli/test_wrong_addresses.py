"""Wrong addresses and folders: the error is one line with the remedy."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import SlowConsumerError

from cli.bus_connection import bus_of
from cli.commands.cluster import unread_resources, unread_rows
from cli.dev.kubeconfig import write_kubeconfig
from cli.doctor.check_cluster import about_lists
from cli.main import foreign_owner, koord
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.system_folder import announced, taken
from shared.bus import Bus
from shared.bus.login import BadLogin, Login
from shared.errors import KoordError
from shared.file_replacement import replace_file
from shared.kube.short_lists import GatewayLists, Unread
from shared.log.unusable_database import DatabaseUnreachable
from shared.unreachable import Unreachable


@pytest.mark.parametrize("url", ["garbage", "postgresql://host:port/name", "mysql://host/name"])
@pytest.mark.parametrize("command", [("events",), ("why", "pod", "default/web"), ("get", "configs")])
def test_a_database_url_that_is_none(url: str, command: tuple[str, ...]) -> None:
    printed = CliRunner().invoke(koord, list(command), env={"KOORD_POSTGRES": url})
    assert printed.exit_code == 1
    assert "give a URL such as postgresql://user@127.0.0.1:5432/koordstream" in printed.stderr


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    printed = CliRunner().invoke(koord, ["up", "--dir", str(tmp_path / "file")])
    assert "cannot be a system's folder (Not a directory); give another --dir" in printed.stderr


def test_a_setting_of_a_service_that_cannot_be_read_ends_the_start(tmp_path: Path) -> None:
    env = {"KOORD_SIMULATOR_PODS": "abc"}
    printed = CliRunner().invoke(koord, ["up", "--dir", str(tmp_path / "system")], env=env)
    assert printed.exit_code == 1
    assert "KOORD_SIMULATOR_PODS is 'abc': " in printed.stderr
    assert not (tmp_path / "system").exists()


def test_nodes_of_a_new_cluster_are_not_promised_to_one_that_exists(tmp_path: Path) -> None:
    (tmp_path / "postgres" / "data").mkdir(parents=True)
    with taken(tmp_path), announced(tmp_path, Endpoints("", "", os.getpid())):
        printed = CliRunner().invoke(koord, ["up", "--dir", str(tmp_path)], env={"KOORD_SIMULATOR_NODES": "20"})
    assert f"KOORD_SIMULATOR_NODES is of a new cluster; the one in {tmp_path} keeps its nodes" in printed.stderr


def test_credentials_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    printed = CliRunner().invoke(koord, ["credentials", "init", str(tmp_path / "file" / "below")])
    assert printed.exit_code == 1
    assert "cannot be read (Not a directory); name another folder, or correct its rights" in printed.stderr
    assert "Errno" not in printed.stderr


def test_damaged_credentials(tmp_path: Path) -> None:
    (tmp_path / "credentials.json").write_text("{")
    printed = CliRunner().invoke(koord, ["credentials", "init", str(tmp_path)])
    assert printed.exit_code == 1
    assert f"{tmp_path}/credentials.json is damaged" in printed.stderr
    assert "put back a copy of it" in printed.stderr
    assert (tmp_path / "credentials.json").read_text() == "{"


def test_the_file_of_an_authority_that_does_not_exist(tmp_path: Path) -> None:
    env = {
        "KOORD_POSTGRES": "postgresql://ada@127.0.0.1:1/x?sslmode=verify-full",
        "PGSSLROOTCERT": f"{tmp_path}/ca.crt",
    }
    printed = CliRunner().invoke(koord, ["events"], env=env)
    assert printed.exit_code == 1
    assert f"there is no file {tmp_path}/ca.crt; correct PGSSLROOTCERT, or sslrootcert of the URL" in printed.stderr


@pytest.mark.parametrize(("url", "shown"), [("foo", "not 'foo'"), ("http://ada:secret@bus", "not a URL with a login")])
def test_a_bus_url_that_is_none(url: str, shown: str) -> None:
    with pytest.raises(BadLogin) as refused:
        Login.of(url)
    assert str(refused.value).endswith(shown)


def test_a_second_system_of_a_folder_is_not_sent_to_another_one(tmp_path: Path) -> None:
    with taken(tmp_path), pytest.raises(KoordError, match="end it first") as refused, taken(tmp_path):
        pass
    assert "--dir" not in str(refused.value)
    with (
        taken(tmp_path),
        pytest.raises(KoordError, match="--shadow --kubeconfig FILE --dir FOLDER"),
        taken(tmp_path, shadow=True),
    ):
        pass


UNPRIVILEGED = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="takes root to become somebody else")
@pytest.mark.parametrize("command", [["up", "--dir"], ["events", "--dir"], ["credentials", "init"]])
def test_a_folder_without_rights(tmp_path: Path, command: list[str]) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:  # nobody may pass, but not write
        if parent.stat().st_uid == os.geteuid() and parent.is_relative_to(tmp_path.parents[2]):
            parent.chmod(0o755)
    (tmp_path / "there" / "simulated").mkdir(parents=True)
    place = tmp_path / ("there" if command == ["events", "--dir"] else "new")
    run = [*UNPRIVILEGED, sys.executable, "-m", "cli", *command, str(place)]
    printed = subprocess.run(
        run, capture_output=True, text=True, check=False, env=os.environ | {"HOME": "/nonexistent"}
    )
    assert printed.returncode == 1
    assert "Traceback" not in printed.stderr
    assert printed.stderr.startswith("koord: ")


def test_a_service_whose_database_is_away_ends_with_one_sentence() -> None:
    env = os.environ | {"KOORD_POSTGRES": "postgresql://ada:secret@127.0.0.1:1/x", "KOORD_NATS": "nats://127.0.0.1:1"}
    run = [sys.executable, "-m", "cli", "run", "audit"]
    printed = subprocess.run(run, capture_output=True, text=True, check=False, env=env)
    assert printed.returncode == 1
    assert "Traceback" not in printed.stderr
    assert "secret" not in printed.stderr
    last = json.loads(printed.stderr.splitlines()[-1])["message"]
    assert last.startswith("Postgres at postgresql://ada:***@127.0.0.1:1/x cannot be reached: ")
    assert last.endswith("; start it, or correct KOORD_POSTGRES")


def test_a_path_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "below"
    printed = CliRunner().invoke(koord, ["audit", "keygen", "--out", str(path / "key")])
    assert printed.exit_code == 1
    assert printed.stderr == (
        f"koord: {path} cannot be used (Not a directory); name another path, or correct its rights\n"
    )


@pytest.mark.parametrize(
    ("command", "end"),
    [
        ("up", ": https://127.0.0.1:1: Connection refused. `koord up` keeps"),
        ("uninstall", " cannot be reached: Connection refused; run it again when it responds"),
    ],
)
def test_an_api_server_that_is_away(tmp_path: Path, command: str, end: str) -> None:
    kubeconfig = write_kubeconfig(
        tmp_path / "config", url="https://127.0.0.1:1", ca=trustme.CA().cert_pem.bytes(), user="u", credentials="token"
    )
    place = ["--dir", str(tmp_path / "systems")]
    printed = CliRunner().invoke(koord, [command, "--kubeconfig", str(kubeconfig), *place])
    assert printed.exit_code == 1
    assert f"{kubeconfig}" in printed.stderr
    assert end in printed.stderr
    assert "GET" not in printed.stderr


def test_an_api_server_that_is_away_is_one_row_for_all_resources() -> None:
    def unread(resource: str, lasts_s: float, reason: str) -> Unread:
        return Unread(resource, lasts_s, f"watch: GET /api/v1/{resource}?watch=1&timeoutSeconds=290: {reason}")

    away = [unread(f"r{number}", 10.0 + number, "Connection refused") for number in range(8)]
    rows = list(unread_rows([*away, unread("pods", 30, "403 pods is forbidden: user may not")]))
    assert rows == [
        ("r0, r1, r2, r3, r4 and 3 more", "10 s to 17 s", "Connection refused"),
        ("pods", "30 s", "403 pods is forbidden: user may not"),
    ]
    identity, server = (
        unread("the namespace kube-system", 7, "no answer"),
        Unreachable("the API server at x", 0, "no answer"),
    )
    assert unread_resources(GatewayLists(unread=(identity,), unreachable=(server,))) == []
    assert unread_resources(GatewayLists(unread=(identity,))) == [identity]
    findings = [finding.what for finding in about_lists(GatewayLists(unread=tuple(away)))]
    assert findings == ["the gateway has not read r0, r1, r2, r3, r4 and 3 more resources for 17 s: Connection refused"]


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        ("garbage", "--owner is no URL"),
        ("mysql://u:p@db/koord", "--owner is 'mysql://u:***@db/koord'"),
        ("postgresql://koord:p@127.0.0.1:1/koord", "start it, or correct --owner"),
    ],
)
def test_a_wrong_url_of_the_owner_is_corrected_in_the_option_that_gave_it(
    tmp_path: Path, owner: str, message: str
) -> None:
    folder = str(tmp_path / "credentials")
    assert CliRunner().invoke(koord, ["credentials", "init", folder]).exit_code == 0
    given = CliRunner().invoke(koord, ["credentials", "postgres", folder, "--owner", owner])
    assert (given.exit_code, message in given.stderr) == (1, True), given.stderr
    assert "KOORD_POSTGRES" not in given.stderr
    from_env = CliRunner().invoke(koord, ["credentials", "postgres", folder], env={"KOORD_OWNER": owner})
    assert message.replace("--owner", "KOORD_OWNER") in from_env.stderr


def test_a_wrong_url_in_the_owners_file_is_corrected_there(tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    assert (
        CliRunner().invoke(koord, ["credentials", "init", str(folder), "--postgres", "127.0.0.1:1/koord"]).exit_code
        == 0
    )
    refused = CliRunner().invoke(koord, ["credentials", "postgres", str(folder)])
    assert f"correct KOORD_POSTGRES of {folder}/env/owner.env" in refused.stderr


def test_the_folder_of_another_user_names_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(KoordError, match=f"{tmp_path} is not writable; correct its rights"), taken(tmp_path / "s"):
        pass
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    whose = f"{tmp_path} belongs to {tmp_path.owner()}, and this user may not write there; run the command as that user"
    with pytest.raises(KoordError, match=whose), taken(tmp_path / "s"):
        pass


def test_a_file_that_cannot_be_replaced_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory") as error:
        replace_file(tmp_path / "file" / "audit.key", b"")
    assert error.value.filename == str(tmp_path / "file" / "audit.key")


def test_a_file_of_another_user_names_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy was to correct the rights of a file with a login."""
    assert foreign_owner(str(tmp_path / "endpoints.json")) == ""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert foreign_owner(str(tmp_path / "no" / "endpoints.json")) == f"{tmp_path} belongs to {tmp_path.owner()}"


def test_a_failure_without_a_text_has_a_reason() -> None:
    error = DatabaseUnreachable("postgresql://ada@127.0.0.1:1/x", TimeoutError())
    assert "cannot be reached: no response in time; start it" in str(error)


async def test_a_subject_that_a_login_may_not_use_is_one_error_and_no_line_besides(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = bus_of("nats://127.0.0.1:1", "koord dev")
    await bus._on_error(RuntimeError('nats: permissions violation for publish to "koord.simulator.delete"'))
    assert bus.violations == 1
    assert caplog.text == ""
    await bus._on_error(SlowConsumerError("koord.events", "", 1, Subscription(Client())))
    assert "bus drops messages" in caplog.text


async def test_what_commands_leave_out_is_logged_for_a_service_of_the_same_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus_of("nats://127.0.0.1:1", "koord dev")
    service = Bus("nats://127.0.0.1:1", name="scheduler")
    await service._on_error(RuntimeError('nats: permissions violation for publish to "koord.simulator.delete"'))
    assert "the bus does not permit a subject" in caplog.text
