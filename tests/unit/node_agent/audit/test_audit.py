"""Audit events: lines of JSON within a bound, and pages of them over HTTP, newest first."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from services.node_agent.audit import audit_log
from services.node_agent.audit.audit_http import audit_route
from services.node_agent.audit.audit_log import AuditLog
from services.node_agent.audit.audit_reader import READER_KEPT_S, AuditReaders, UnknownPage
from shared.agents.actions import Burst, EvictionRequested, PodsRequested, Suppressed
from shared.kube.instants import SECOND
from tests.support.pods import kept_pod

NOW_NS = 1_780_000_000 * SECOND


def an_audit_log(folder: Path, *, verbosity: int = 3, max_disk_mb: int = 16) -> AuditLog:
    return AuditLog(folder / "audit", verbosity=verbosity, max_disk_mb=max_disk_mb, now_ns=lambda: NOW_NS)


def numbered(log: AuditLog, first: int, last: int) -> None:
    for number in range(first, last + 1):
        log.record("node", 0, "test", str(number))


def lines(log: AuditLog) -> list[dict[str, object]]:
    return [json.loads(line) for line in (log.folder / "audit.log").read_text().splitlines()]


def test_actions_and_written_files_are_recorded_with_pod_and_level(tmp_path: Path) -> None:
    log, pod = an_audit_log(tmp_path), kept_pod("be", namespace="batch", uid="u")
    log.action(Suppressed("cpuset", 2_000, "0-1"), None)
    log.action(Burst("u", "c0ffee", 240_000), pod)
    log.action(EvictionRequested("u", "memory of best effort"), pod)
    log.action(PodsRequested(), None)
    log.file_written("/sys/fs/cgroup/kubepods/cpu.max", "20000")
    found = lines(log)
    assert [(each["reason"], each["level"]) for each in found] == [
        ("suppressBEByNodeCPU", 1),
        ("CPUBurst", 1),
        ("evictPod", 0),
        ("UpdateCgroups", 3),
    ]
    assert found[2] == {
        "createdAt": "2026-05-28T20:26:40Z",
        "type": "pod",
        "level": 0,
        "namespace": "batch",
        "name": "be",
        "reason": "evictPod",
        "message": "memory of best effort",
    }
    assert found[1]["container"] == "c0ffee"


def test_events_above_the_verbosity_are_left_out(tmp_path: Path) -> None:
    log = an_audit_log(tmp_path, verbosity=1)
    log.file_written("cpu.max", "1")
    log.action(Suppressed("cpuset"), None)
    assert [each["reason"] for each in lines(log)] == ["suppressBEByNodeCPU"]


def test_files_are_rotated_and_the_oldest_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "FILE_BYTES", 2_000)
    log = AuditLog(tmp_path, verbosity=3, max_disk_mb=0, now_ns=lambda: NOW_NS)
    log._files = 3
    numbered(log, 1, 100)
    names = [path.name for path in log.files()]
    assert names[0] == "audit.log"
    assert len(names) == 3
    assert names[1].startswith("audit-2026-05-28-20-26-40-")
    assert sum(path.stat().st_size for path in log.files()) <= 6_000
    newest = AuditReaders(log.files, 4, lambda: 0.0).page(30).lines
    assert [json.loads(line)["message"] for line in newest] == [str(number) for number in range(100, 70, -1)]


def test_an_agent_whose_disk_takes_nothing_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "audit").write_text("a file where the folder should be")
    log = an_audit_log(tmp_path)
    numbered(log, 1, 3)
    assert len(caplog.records) == 1
    (tmp_path / "audit").unlink()
    numbered(log, 4, 4)
    assert [each["message"] for each in lines(log)] == ["4"]


def test_a_reader_goes_on_where_its_page_ended_whatever_is_written_and_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "FILE_BYTES", 1_500)
    log = an_audit_log(tmp_path)
    numbered(log, 1, 40)
    with (log.folder / "audit.log").open("ab") as file:
        file.write(b'{"createdAt":"half of a li\n')
    now_s = [0.0]
    readers = AuditReaders(log.files, 2, lambda: now_s[0])
    page, found = readers.page(7), list[int]()
    while True:
        found += [int(json.loads(line)["message"]) for line in page.lines]
        if not page.token:
            break
        numbered(log, 1_000, 1_010)
        page = readers.page(7, page.token)
    assert found == list(range(40, 0, -1))
    first = readers.page(1).token
    for _ in range(2):
        readers.page(1)
    with pytest.raises(UnknownPage):
        readers.page(1, first)
    last = readers.page(1).token
    now_s[0] += READER_KEPT_S + 1
    with pytest.raises(UnknownPage):
        readers.page(1, last)
    readers.close()
    log.close()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    log = an_audit_log(tmp_path)
    numbered(log, 1, 5)
    app = web.Application()
    readers = AuditReaders(log.files, 4, lambda: 0.0)
    app.add_routes([audit_route(readers, 2_048)])
    async with TestClient(TestServer(app)) as made:
        yield made
    readers.close()
    log.close()


async def test_events_over_http_by_pages(client: TestClient[web.Request, web.Application]) -> None:
    first = await client.get("/events?size=3", headers={"Accept": "application/json"})
    page = await first.json()
    assert [each["message"] for each in page["Events"]] == ["5", "4", "3"]
    second = await client.get(f"/events?size=3&pageToken={page['NextPageToken']}")
    assert [json.loads(line)["message"] for line in (await second.text()).splitlines()] == ["2", "1"]
    assert "Next-Page-Token" not in second.headers
    third = await client.get("/events?size=2")
    assert third.headers["Next-Page-Token"]


@pytest.mark.parametrize(
    ("query", "status"), [("size=2049", 400), ("size=0", 400), ("size=x", 400), ("pageToken=none", 409)]
)
async def test_requests_that_are_wrong(
    client: TestClient[web.Request, web.Application], query: str, status: int
) -> None:
    response = await client.get(f"/events?{query}")
    assert response.status == status
    assert "give a number" in await response.text() or status == 409
