"""The folder in which hook servers register."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from services.runtime_proxy.registered_servers import MAX_FILES, RegisteredServers
from shared.runtime_hooks.registration import (
    BadRegistration,
    Registration,
    encode_registration,
    read_registration,
)

GOOD: dict[str, Any] = {
    "remote-endpoint": "/run/h.sock",
    "failure-policy": "Fail",
    "runtime-hooks": ["PreCreateContainer"],
}


def write(folder: Path, name: str, text: str | dict[str, Any]) -> None:
    (folder / name).write_text(text if isinstance(text, str) else json.dumps(text))


def endpoints(servers: RegisteredServers, stage: str = "PreCreateContainer") -> list[str]:
    return [each.remote_endpoint for each in servers.for_stage(stage)]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "f.json is not JSON"),
        ("[" * 50_000, "f.json: expected an object, got a list"),
        ("{}", "f.json: Object missing required field `remote-endpoint`.*give remote-endpoint"),
        (GOOD | {"failure-policy": "Maybe"}, "f.json: .*Maybe.*failure-policy"),
        (GOOD | {"runtime-hooks": "PreCreateContainer"}, r"f.json: expected a list, got a string.*runtime-hooks"),
        (GOOD | {"remote-endpoint": "h.sock"}, "f.json: remote-endpoint is 'h.sock'; give the absolute path"),
        (GOOD | {"remote-endpoint": "/" + "x" * 107}, "at most 107 bytes"),
        (" " * 70_000, "f.json is longer than 65536 bytes"),
    ],
)
def test_an_invalid_file_is_named_with_field_and_remedy(text: str | dict[str, Any], error: str) -> None:
    with pytest.raises(BadRegistration, match=error):
        read_registration("f.json", (text if isinstance(text, str) else json.dumps(text)).encode())


def test_a_registration_is_read_as_it_was_written() -> None:
    written = Registration(remote_endpoint="/run/h.sock", failure_policy="Ignore", runtime_hooks=("PreRunPodSandbox",))
    data = encode_registration(written)
    assert read_registration("f.json", data) == written
    assert b'\n\t"remote-endpoint": "/run/h.sock"' in data
    assert read_registration("f.json", b'{"remote-endpoint":"unix:///run/h.sock"}').remote_endpoint == "/run/h.sock"


def test_files_come_change_and_go_and_an_invalid_one_leaves_the_last_good_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = RegisteredServers(tmp_path / "none")
    assert not servers.in_force()
    assert "none cannot be read" in caplog.text
    servers = RegisteredServers(tmp_path)
    write(tmp_path, "b.json", GOOD | {"remote-endpoint": "/b"})
    write(tmp_path, "a.json", GOOD | {"remote-endpoint": "/a"})
    write(tmp_path, "other.yaml", GOOD)
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to("nowhere")
    assert endpoints(servers) == ["/a", "/b"]
    assert not endpoints(servers, "PreRunPodSandbox")
    write(tmp_path, "a.json", "{broken")
    assert endpoints(servers) == ["/a", "/b"]
    assert "the one before stays in force" in [getattr(each, "then", "") for each in caplog.records]
    (tmp_path / "a.json").unlink()
    assert endpoints(servers) == ["/b"]
    write(tmp_path, "b.json", GOOD | {"remote-endpoint": "/c", "runtime-hooks": ["PreCreateContainer", "PreFuture"]})
    assert endpoints(servers) == ["/c"]
    assert "PreFuture" in [getattr(each, "stage", "") for each in caplog.records]


def test_a_file_that_is_replaced_within_the_clocks_step_is_read_again(tmp_path: Path) -> None:
    servers = RegisteredServers(tmp_path)
    write(tmp_path, "a.json", GOOD | {"remote-endpoint": "/a"})
    stat = (tmp_path / "a.json").stat()
    assert endpoints(servers) == ["/a"]
    write(tmp_path, "new", GOOD | {"remote-endpoint": "/b"})
    os.utime(tmp_path / "new", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (tmp_path / "new").rename(tmp_path / "a.json")
    assert endpoints(servers) == ["/b"]


def test_a_folder_full_of_files_is_read_in_part(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MAX_FILES + 5):
        write(tmp_path, f"{number:03}.json", GOOD)
    servers = RegisteredServers(tmp_path)

    def warnings() -> int:
        return caplog.text.count("the first 64 by name count")

    assert len(servers.in_force()) == MAX_FILES
    assert len(servers.in_force()) == MAX_FILES
    assert warnings() == 1
    for number in range(5):
        (tmp_path / f"{number:03}.json").rename(tmp_path / f"{number}.away")
    servers.in_force()
    for number in range(5):
        (tmp_path / f"{number}.away").rename(tmp_path / f"{number:03}.json")
    servers.in_force()
    assert warnings() == 2  # the folder had nothing to warn about in between


def test_a_file_that_could_not_be_read_is_read_at_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    servers = RegisteredServers(tmp_path)
    write(tmp_path, "a.json", GOOD | {"remote-endpoint": "/a"})
    with monkeypatch.context() as failing:
        failing.setattr(Path, "open", fail)
        assert not endpoints(servers)
        assert not endpoints(servers)
    assert caplog.text.count("a registration cannot be read") == 1
    assert endpoints(servers) == ["/a"]
    write(tmp_path, "a.json", GOOD | {"remote-endpoint": "/longer"})
    with monkeypatch.context() as failing:
        failing.setattr(Path, "open", fail)
        assert endpoints(servers) == ["/a"]
    (tmp_path / "a.json").unlink()
    assert not endpoints(servers)  # a file that is gone ends its registration, read or not
