"""docs/descheduling.md: the configuration and the outputs of its example."""

import re
from pathlib import Path

from cli.scheduling.why_eviction_case import ExplainedVictim, case_lines, explained
from shared.events import RecordedEvent
from shared.events.descheduling import EvictionCaseClosed, EvictionCaseOpened
from tests.unit.descheduler.small_cluster import SmallCluster

GUIDE = (Path(__file__).parents[3] / "docs/descheduling.md").read_text()
CONFIG = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)[0]
OPEN, CLOSED = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)


def report(cluster: SmallCluster, **hot: int) -> None:
    cluster.report("hot", {name.replace("_", "-"): used for name, used in hot.items()})
    cluster.report("cold", {}, system=500)
    cluster.report("middle", {"rest": 5_000})


def lines(opened: EvictionCaseOpened, at_ns: int, closed: EvictionCaseClosed | None, state: str) -> str:
    victims = [
        ExplainedVictim(each.pod, each.node, each.destination, each.reason, each.job, state, "")
        for each in opened.victims
    ]
    return "\n".join(case_lines(explained(RecordedEvent("descheduling", 1, opened, at_ns), closed, victims))) + "\n"


def test_the_outputs_of_the_example_are_those_of_the_guide() -> None:
    cluster = SmallCluster(CONFIG)
    for name in ("hot", "cold", "middle"):
        cluster.node(name)
    for number in range(3):
        cluster.pod(f"web-{number}", "hot", owner="web")
    cluster.pod("rest", "middle")
    report(cluster, web_0=3_000, web_1=3_000, web_2=3_000)
    opened, at_ns = cluster.cycle(), cluster.now_ns
    assert opened is not None
    assert lines(opened, at_ns, None, "waiting") == OPEN
    cluster.wait(30)
    cluster.delete("web-0")
    cluster.pod("web-3", "cold", owner="web")
    cluster.job(opened.victims[0].job, "Succeeded", bound="web-3")
    cluster.wait(30)
    report(cluster, web_1=3_100, web_2=3_000)
    (closed,) = cluster.close()
    assert lines(opened, at_ns, closed, closed.victims[0].outcome) == CLOSED
