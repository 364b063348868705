"""Resources that are not read, by a clock that the test moves."""

from services.gateway.watch.outages import Outage, Outages


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
