"""Resources that are not read, by a clock that the test moves."""

from services.gateway.watch.unread_resources import Outage, Outages, unreachable
from shared.kube.instants import SECOND
from shared.kube.short_lists import CLUSTER_IDENTITY


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_an_outage_lasts_from_its_first_failure_and_has_the_newest_reason() -> None:
    outages = Outages(clock := Clock())
    outages.failing("pods", "list: 503")
    clock.now_s += 5
    outages.failing("pods", "list: 504")
    assert outages.current() == [Outage("pods", 5.0, "list: 504")]
    assert outages.longest_s() == 5
    outages.failing("pods", "")
    assert outages.current() == []
    assert outages.longest_s() == 0


def test_an_outage_is_reported_when_it_has_lasted_and_again_after_as_long() -> None:
    outages = Outages(clock := Clock())
    outages.failing("pods", "list: 503")
    reported = []
    for _ in range(10):
        clock.now_s += 50
        reported.append(len(outages.to_report(180)))
    assert reported == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0]


def test_a_watch_that_the_server_accepted_is_not_shown_and_is_an_outage_until_it_delivers() -> None:
    outages = Outages(clock := Clock())
    outages.failing("pods", "watch: 503")
    clock.now_s += 196
    outages.accepted("pods")
    clock.now_s += 4
    assert outages.current() == []
    assert (outages.longest_s(), len(outages.to_report(180))) == (200, 1)
    outages.failing("pods", "watch: 503 again")
    assert outages.current() == [Outage("pods", 200.0, "watch: 503 again")]


def test_a_watch_that_stood_before_it_failed_has_ended_the_outage_before() -> None:
    """A frozen API server came back, was shown as well for 12 s, and was killed: the outage began with that."""
    outages = Outages(clock := Clock())
    outages.failing("pods", "watch: no response in time")
    clock.now_s += 300
    outages.accepted("pods")
    clock.now_s += 12
    outages.failing("pods", "watch: Connection refused")
    clock.now_s += 3
    assert outages.current() == [Outage("pods", 3.0, "watch: Connection refused")]
    assert outages.to_report(180) == []


def test_an_api_server_that_has_sent_nothing_since_the_first_failure_is_away_as_a_whole() -> None:
    outages = Outages(clock := Clock())
    outages.failing("the Lease koordinator-system/koordstream", "GET /apis: no response in time")
    clock.now_s += 10

    def shown(silent_s: float) -> list[tuple[str, int]]:
        found = unreachable(outages.current(), "https://kube:6443", 100 * SECOND, silent_s)
        return [(each.server, each.since_ns // SECOND) for each in found]

    assert shown(silent_s=21.0) == [("the API server at https://kube:6443", 79)], "since its last answer"
    assert shown(silent_s=2.0) == [("some resources of the API server at https://kube:6443", 90)]


def test_an_api_server_is_unreachable_when_neither_nodes_nor_pods_are_read() -> None:
    def shown(*resources: str) -> list[tuple[str, int, str]]:
        outages = Outages(clock := Clock())
        for resource in resources:
            outages.failing(resource, f"watch: GET /api/v1/{resource.replace(' ', '/')}?watch=1: connection refused")
            clock.now_s += 1
        found = unreachable(outages.current(), "https://kube:6443", 100 * SECOND)
        return [(each.server, each.since_ns // SECOND, each.reason) for each in found]

    assert shown() == []
    for whole in (("services", "pods", "nodes"), (CLUSTER_IDENTITY, "a", "b")):
        assert shown(*whole) == [("the API server at https://kube:6443", 97, "connection refused")]
    assert shown("pods", "a", "b", "c", "d") == [
        ("some resources of the API server at https://kube:6443", 95, "pods, a, b and 2 more: connection refused")
    ]
