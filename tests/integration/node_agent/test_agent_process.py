"""`koord run node-agent` as a process on this machine: reports, pages, the end."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.bench.agent_pod_cgroups import PodCgroups
from cli.embedded import EmbeddedNats
from cli.processes.free_ports import free_port
from shared.agents import receipt, report, subjects
from shared.agents.receipt import Receipt
from shared.agents.report import Report
from shared.bus import Bus
from tests.integration.node_agent.agent_process import DEADLINE_S, NODE, an_agent, page
from tests.support.waiting import until


class ReceivedReports:
    """Reports as they arrive over NATS, each accepted."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.reports: list[Report] = []

    async def answer(self) -> None:
        await self.bus.respond(subjects.subject(NODE, subjects.REPORT), self._accept)

    async def receive(self) -> None:
        await self.bus.subscribe(subjects.subject(NODE, subjects.REPORT), self._take)

    async def _accept(self, data: bytes) -> bytes:
        self._take(data)
        return receipt.encode(Receipt("report", self.reports[-1].boot, self.reports[-1].seq))

    def _take(self, data: bytes) -> None:
        self.reports.append(report.decode(data, NODE))


@pytest.fixture
async def received(server: EmbeddedNats) -> AsyncIterator[ReceivedReports]:
    bus = Bus(server.url, name="ingest")
    await bus.start()
    yield ReceivedReports(bus)
    await bus.close()


@pytest.mark.parametrize("transport", ["nats", "mqtt"])
async def test_a_machine_reports_itself_and_its_pods(
    transport: str, server: EmbeddedNats, received: ReceivedReports, cgroups: PodCgroups, tmp_path: Path
) -> None:
    await (received.answer() if transport == "nats" else received.receive())
    burning = cgroups.add(burn_ms=500, held_mib=40)
    http = f"127.0.0.1:{free_port()}"
    process = an_agent(
        tmp_path,
        server,
        KOORD_NODE_AGENT_TRANSPORT=transport,
        KOORD_NODE_AGENT_CGROUP_PARENT=cgroups.parent,
        KOORD_HTTP_ADDR=http,
    )
    process.start()
    try:
        await until(lambda: any(pod.cpu_count > 1 and pod.cpu_sum > 0 for one in received.reports for pod in one.pods))
        last = received.reports[-1]
        assert [pod.uid for pod in last.pods] == [burning]
        assert last.pods[0].memory_last > 32 * 2**20
        assert len(last.node_usage.cpu) == len(last.system_usage.memory) > 1
        assert max(last.node_usage.cpu) > 0
        assert await asyncio.to_thread(page, http, "readyz") == "leading\n"
        metrics = await asyncio.to_thread(page, http, "metrics")
        assert re.search(rf'koordlet_node_used_cpu_cores{{node="{NODE}"}} \d+\.\d+', metrics)
        assert re.search(rf'koordlet_node_used_memory_bytes{{node="{NODE}"}} \d', metrics)
        assert f'koord_node_agent_pods{{node="{NODE}"}} 1.0' in metrics
        assert '"service":"node-agent"' in await asyncio.to_thread(page, http, "statusz")
        process.request_exit()
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0
    finally:
        process.stop()
    seqs = [one.seq for one in received.reports]
    assert sorted(set(seqs)) == list(range(1, max(seqs) + 1))
    assert len({one.boot for one in received.reports}) == 1
    for before, after in zip(received.reports, received.reports[1:], strict=False):
        assert abs(after.begins_ns - before.at_ns) < 10**9  # one interval begins where the other ended


async def test_the_last_samples_are_reported_at_the_end(
    server: EmbeddedNats, received: ReceivedReports, tmp_path: Path
) -> None:
    await received.answer()
    http = f"127.0.0.1:{free_port()}"
    slow = {"KOORD_NODE_AGENT_REPORT_INTERVAL_S": "600", "KOORD_NODE_AGENT_FIRST_REPORT_S": "600"}
    process = an_agent(tmp_path, server, **slow, KOORD_NODE_AGENT_TRANSPORT="nats", KOORD_HTTP_ADDR=http)
    process.start()
    try:
        await asyncio.to_thread(process.wait_until, lambda: page(http, "readyz") == "leading\n", DEADLINE_S)
        assert received.reports == []
        process.request_exit()
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0
    finally:
        process.stop()
    assert [one.seq for one in received.reports] == [1]


async def test_without_a_bus_it_measures_and_ends_on_sigterm(tmp_path: Path) -> None:
    http = f"127.0.0.1:{free_port()}"
    process = an_agent(tmp_path, None, KOORD_HTTP_ADDR=http)
    process.start()
    try:
        await asyncio.to_thread(process.wait_until, lambda: page(http, "readyz") == "leading\n", DEADLINE_S)
        connected = f'koord_node_agent_connected{{node="{NODE}"}} 0.0'
        assert connected in await asyncio.to_thread(page, http, "metrics")
        process.request_exit()
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0
    finally:
        process.stop()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"KOORD_NODE_AGENT_NODE": ""}, "koord: neither KOORD_NODE_AGENT_NODE nor NODE_NAME is set"),
        ({"KOORD_NODE_AGENT_TRANSPORT": "mqtt", "KOORD_MQTT": "broker:1883"}, "KOORD_MQTT begins with 'broker'"),
        ({"KOORD_NATS": "127.0.0.1"}, "KOORD_NATS names no bus"),
        ({"KOORD_NATS_CA": "/nowhere/ca.crt"}, "a file that cannot be used"),
    ],
)
async def test_an_invalid_setting_ends_it_with_a_hint(settings: dict[str, str], text: str, tmp_path: Path) -> None:
    process = an_agent(tmp_path, None, **settings)
    process.start()
    assert await asyncio.to_thread(process.wait, DEADLINE_S) == 1
    assert text in process.tail()
    assert "Traceback" not in process.tail()


async def test_a_mistyped_variable_is_in_its_log(tmp_path: Path) -> None:
    process = an_agent(tmp_path, None, KOORD_NODE_AGENT_COLECT_INTERVAL_S="5")
    process.start()
    try:
        warning = (
            "KOORD_NODE_AGENT_COLECT_INTERVAL_S sets nothing; perhaps 'KOORD_NODE_AGENT_COLLECT_INTERVAL_S' is meant"
        )
        await until(lambda: warning in process.log.read_text())
        assert process.log.read_text().count("sets nothing") == 1
    finally:
        await asyncio.to_thread(process.kill)
