"""Sums over a window equal sums computed afresh from its reports."""

from hypothesis import given
from hypothesis import strategies as st

from services.metrics_ingest.agent_reports.pod_usage_means import PodUsageMeans, piece_of
from shared.agents.report import MAX_CPU, MAX_MEMORY, PodSum
from shared.events.metrics import Usage

counts = st.integers(0, 60)


@st.composite
def pods(draw: st.DrawFn) -> list[PodSum]:
    """The pods of one report: some of four, some of them not measured in one way or in both."""
    found = []
    for uid in draw(st.lists(st.sampled_from("abcd"), unique=True)):
        cpu, memory = draw(counts), draw(counts)
        cpu_sum = draw(st.integers(0, MAX_CPU * cpu))
        found.append(PodSum(uid, cpu_sum, cpu, 0, draw(st.integers(0, MAX_MEMORY * memory)), memory, 0))
    return found


def means(reports: list[list[PodSum]]) -> dict[str, Usage]:
    """The same as a plain computation."""
    found = {}
    for uid in "abcd":
        those = [pod for report in reports for pod in report if pod.uid == uid]
        cpu, memory = sum(pod.cpu_count for pod in those), sum(pod.memory_count for pod in those)
        if cpu or memory:
            found[uid] = Usage(
                sum(pod.cpu_sum for pod in those) // (cpu * 1000) if cpu else None,
                sum(pod.memory_sum for pod in those) // memory if memory else None,
            )
    return found


@given(st.lists(pods(), max_size=30), st.integers(1, 6))
def test_sums_over_a_window_equal_those_of_its_reports(reports: list[list[PodSum]], window: int) -> None:
    sums, inside = PodUsageMeans(), []
    pieces = [piece_of(report, tuple(pod.uid for pod in report)) for report in reports]
    for number, piece in enumerate(pieces):
        sums.count(piece, +1)
        inside.append(number)
        if len(inside) > window:
            sums.count(pieces[inside.pop(0)], -1)
        assert sums.means() == means([reports[which] for which in inside])
    while inside:
        sums.count(pieces[inside.pop(0)], -1)
    assert sums.means() == {}
