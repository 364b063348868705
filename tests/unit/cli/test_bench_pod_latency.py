"""The figures of `koord bench e2e`, and what it refuses."""

from click.testing import CliRunner

from cli.bench.e2e import e2e
from cli.bench.e2e_pod_latency import Figures, Timeline
from cli.bench.e2e_target import best


def test_figures_follow_from_the_instants() -> None:
    now = 0.0
    timeline = Timeline(100, lambda: now)
    timeline.begin()
    for number in range(100):
        now = number / 100
        timeline.created(f"p{number}")
        now += (number + 1) / 1000
        timeline.bound(f"p{number}")
        timeline.bound(f"p{number}")  # seen again
    assert timeline.all_bound.is_set()
    assert timeline.waiting == []
    assert timeline.figures() == Figures(pods_per_s=91.7, latency_p50_s=0.05, latency_p99_s=0.099, create_per_s=101.0)


def test_a_pod_that_is_bound_before_its_answer_comes_has_no_latency() -> None:
    now = 1.0
    timeline = Timeline(1, lambda: now)
    timeline.bound("p")
    now = 2.0
    timeline.created("p")
    assert timeline.figures().latency_p99_s == 0


def test_the_best_turn_is_the_one_with_the_highest_rate() -> None:
    turns = [Figures(100, 0.1, 0.2), Figures(300, 0.5, 0.6), Figures(200, 0.1, 0.2)]
    assert best(turns) is turns[1]


def test_another_scheduler_needs_a_real_api_server_and_pods_need_room() -> None:
    for arguments, word in (
        (["--against", "default-scheduler"], "--api kube"),
        (["--nodes", "1", "--pods", "200"], "hold"),
    ):
        outcome = CliRunner().invoke(e2e, arguments)
        assert outcome.exit_code == 2
        assert word in outcome.output
