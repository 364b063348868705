"""Reports from the time in which an agent had no connection: usage by interval, each recorded once."""

import zlib

import msgspec
import pytest

from services.metrics_ingest.agent_reports.aggregation_policy import Policy
from services.metrics_ingest.agent_reports.decide_history import believed, history, is_recorded
from services.metrics_ingest.agent_reports.metrics_ingest_state import RUNS_KEPT, ReportIngestState
from services.metrics_ingest.agent_reports.settings import IngestSettings
from shared.agents import backlog
from shared.agents.backlog import MAX_PLAIN_BYTES, Backlog
from shared.agents.report import BadReport, PodSum, Report, Series, encode
from shared.events.metrics import NodeHistoryReported, NodeReported, NodeReportsExpired, Usage
from shared.kube.instants import SECOND
from tests.support.pods import observed
from tests.unit.metrics_ingest.cluster_history import START_NS, Logs, fold, pod

POLICY = Policy()
SETTINGS = IngestSettings()
HOUR_NS = 3_600 * SECOND


def quarter(number: int, cores: int, node: str = "a") -> Report:
    """Returns a report of 15 s; the first one ends 15 s into an hour."""
    cpu = cores * 1_000_000
    return Report(
        node=node,
        boot="run",
        seq=number,
        at_ns=START_NS // HOUR_NS * HOUR_NS + 15 * number * SECOND - 1,
        interval_ns=15 * SECOND,
        node_usage=Series((5_000, 10_000), (cpu, cpu), (1 << 30, 1 << 30)),
        pods=(PodSum("uid-p", cpu, 1, cpu, 1 << 20, 1, 1 << 20), PodSum("uid-gone", cpu, 1, cpu, 7, 1, 7)),
    )


def state_with_pod() -> ReportIngestState:
    logs = Logs()
    logs.append("cluster", observed(pod("p", "a")))
    return fold(ReportIngestState, logs.contexts["cluster"])


def test_usage_is_the_mean_of_each_reporting_interval() -> None:
    reports = [quarter(number, number) for number in range(1, 9)]
    events = history(state_with_pod(), Backlog("a", "run", 3, b""), reversed(reports), POLICY)
    assert [event.usage for event in events] == [Usage(2_500, 1 << 30), Usage(6_500, 1 << 30)]
    assert [event.at_ns for event in events] == [reports[3].at_ns, reports[7].at_ns]
    assert {(event.node, event.boot, event.number, event.interval_s) for event in events} == {("a", "run", 3, 60)}
    (of_class,) = events[0].pods
    assert [(each.pod, each.cpu_milli) for each in of_class.pods] == [("d/p", 2_500)]
    assert events[0].unmatched == Usage(2_500, 7)


def test_only_reports_that_are_wrong_are_left_out() -> None:
    good = quarter(1, 1)
    other = quarter(2, 1, node="b")
    ahead = msgspec.structs.replace(good, seq=3, at_ns=good.at_ns + 2 * HOUR_NS)
    old = msgspec.structs.replace(good, seq=4, at_ns=good.at_ns - 8 * 24 * HOUR_NS)
    packed = [encode(good), encode(other), b"x", encode(ahead), encode(old)]
    valid, faulty = believed(packed, "a", SETTINGS, good.at_ns + HOUR_NS)
    assert valid == [good]
    assert [error.field for error in faulty] == ["node", "", "at_ns", "at_ns"]


def test_a_repeat_is_known_by_run_and_number_through_a_snapshot_and_an_expiry() -> None:
    logs = Logs()
    for number in range(1, RUNS_KEPT + 3):
        logs.append("metrics-0", NodeHistoryReported("a", f"run-{number}", number, number, 60))
    state = ReportIngestState()
    state.restore(fold(ReportIngestState, logs.contexts["metrics-0"]).encode())
    runs = state.history["a"]
    assert list(runs) == [f"run-{number}" for number in range(3, RUNS_KEPT + 3)]
    assert [is_recorded(runs, Backlog("a", "run-5", number, b"")) for number in (4, 5, 6)] == [True, True, False]
    assert not is_recorded(runs, Backlog("a", "run-99", 1, b""))
    logs.append("metrics-0", NodeReported("a", 5, 60, 300), NodeReportsExpired("a", 5))
    assert fold(ReportIngestState, logs.contexts["metrics-0"]).history == {}


def test_a_message_of_reports_differs_from_a_report() -> None:
    packed = [encode(quarter(number, 1)) for number in range(1, 21)]
    data = backlog.encode("a", "run", 7, packed)
    assert len(data) * 5 < sum(map(len, packed))
    assert backlog.is_backlog(data)
    assert not any(map(backlog.is_backlog, (*packed, b"", b"\x93")))
    message, reports = backlog.decode(data, "a")
    assert (message.boot, message.seq, reports) == ("run", 7, packed)


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"x", "no compressed list"),
        (zlib.compress(msgspec.msgpack.encode("text")), "no compressed list"),
        (zlib.compress(msgspec.msgpack.encode([b""] * 241)), "no compressed list"),
        (zlib.compress(b"\0" * (MAX_PLAIN_BYTES + 1)), "more than 8388608 bytes"),
    ],
)
def test_a_message_that_is_none_or_that_would_fill_the_memory_is_rejected(packed: bytes, why: str) -> None:
    with pytest.raises(BadReport, match=why):
        backlog.decode(msgspec.msgpack.encode(Backlog("a", "run", 1, packed)), "a")


def test_a_message_of_another_node_is_rejected() -> None:
    with pytest.raises(BadReport, match="another node"):
        backlog.decode(backlog.encode("b", "run", 1, []), "a")
