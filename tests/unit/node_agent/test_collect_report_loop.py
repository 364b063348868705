"""The agent without a connection: messages in its outbox, and their times."""

import asyncio
import itertools
import time
from pathlib import Path

import pytest

from services.node_agent.collect_report_loop import Agent
from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.collectors.usage_collector import Collector
from services.node_agent.collectors.usage_sample_types import SECOND_NS
from services.node_agent.prometheus.durations import Durations
from services.node_agent.prometheus.exposition import AgentMetrics
from services.node_agent.settings import AgentSettings
from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.transport.outbox import Outbox
from shared.agents import actions, report
from shared.agents.actions import EvictionRequested, Suppressed
from shared.agents.report import Report
from shared.agents.subjects import ACTION, REPORT
from tests.unit.node_agent.collectors.node_on_files import NodeOnFiles


class Made:
    """An agent on a node made of files, with the real clock."""

    def __init__(self, folder: Path) -> None:
        machine = NodeOnFiles(folder / "machine")
        settings = AgentSettings(node="worker-1", collect_interval_s=0.1, report_interval_s=1, first_report_s=1)
        self.outbox = Outbox(1_000_000)
        collector = Collector(machine.proc, machine.cgroup, "", interval_s=0.1, clock_ns=time.monotonic_ns)
        self.agent = Agent(settings, collector, self.outbox, NodeSloInformer("worker-1", folder))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


async def test_reports_follow_each_other_without_gap_and_the_last_one_comes_at_the_end(made: Made) -> None:
    running = asyncio.create_task(made.agent.run())
    reports: list[Report] = []

    async def take() -> None:
        message = await made.outbox.next()
        assert message.kind == REPORT
        reports.append(report.decode(message.data, "worker-1"))
        made.outbox.done(message)

    async with asyncio.timeout(60):
        while len(reports) < 2:
            await take()
        cycles = made.agent.figures().cycles
        while made.agent.figures().cycles < cycles + 2:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        while len(made.outbox):
            await take()
    assert [one.seq for one in reports] == list(range(1, len(reports) + 1))
    assert len(reports) >= 3
    for before, after in itertools.pairwise(reports):
        assert abs(after.begins_ns - before.at_ns) < SECOND_NS // 10
    assert all(one.node_usage.offset_ms for one in reports)


async def test_actions_are_numbered_and_go_ahead_of_reports(made: Made) -> None:
    request = EvictionRequested("0f1c", "memory of best-effort pods is above 70 % of the node")
    made.agent.report_action(request)
    made.agent.report_action(Suppressed("cfsQuota", 4_000))
    found = []
    while len(made.outbox):
        message = await made.outbox.next()
        assert message.kind == ACTION
        found.append(actions.decode(message.data, "worker-1"))
        made.outbox.done(message)
    assert [(report.seq, report.action) for report in found] == [(1, request), (2, Suppressed("cfsQuota", 4_000))]
    assert found[0].boot == found[1].boot


def test_its_figures_begin_empty(made: Made) -> None:
    figures = made.agent.figures()
    assert (figures.node, figures.usage, figures.slo, figures.cycles) == ("worker-1", None, None, 0)


def test_its_page_shows_what_was_measured_besides_usage_with_its_labels(made: Made) -> None:
    labels = {"pod_uid": "x", "pod_namespace": "d", "pod_name": "p"}
    gauges = (
        Gauge("koord_node_agent_pod_throttled", labels, 0.25),
        Gauge("koord_node_agent_pod_throttled", {**labels, "pod_uid": "y"}, 0.5),
        Gauge(
            "koordlet_host_application_resource_usage",
            {"host_application_name": "nginx", "resource": "cpu", "priority_class": "koord-prod", "qos": "LS"},
            1,
        ),
    )
    page = AgentMetrics(lambda: made.agent.figures()._replace(gauges=gauges), lambda: True).text().decode()
    assert 'koord_node_agent_pod_throttled{node="worker-1",pod_name="p",pod_namespace="d",pod_uid="y"} 0.5' in page
    assert 'koordlet_host_application_resource_usage{host_application_name="nginx",node="worker-1"' in page
    assert page.count("# TYPE koord_node_agent_pod_throttled") == 1


def test_its_page_has_buckets_and_sum_of_durations(made: Made) -> None:
    name = "koordlet_resource_update_duration_milliseconds"
    durations = Durations(name, ("type", "status"))
    durations.observe(0.03, "cpu.shares", "success")
    figures = made.agent.figures()._replace(histograms=tuple(durations.histograms()))
    page = AgentMetrics(lambda: figures, lambda: True).text().decode()
    assert f'{name}_bucket{{le="0.01",status="success",type="cpu.shares"}} 0.0' in page
    assert f'{name}_bucket{{le="0.04",status="success",type="cpu.shares"}} 1.0' in page
    assert f'{name}_bucket{{le="+Inf",status="success",type="cpu.shares"}} 1.0' in page
    assert f'{name}_sum{{status="success",type="cpu.shares"}} 0.03' in page
