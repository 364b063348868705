"""docs/descheduling.md: the configuration and the outputs of its example."""

import re
from pathlib import Path

import pytest

from cli.scheduling.defrag import answer_of, lines_of
from cli.scheduling.why_eviction_case import ExplainedVictim, case_lines, explained
from services.descheduler.configuration.plugin_kinds import MIGRATION_CONTROLLER
from services.descheduler.configuration.read_configuration import read_configuration
from services.descheduler.framework.close_cases import left_node
from services.descheduler.plugins.registry import REGISTRY
from services.scheduler.explain.movable_pods import why_fixed
from services.scheduler.explain.moves_that_admit_unit import moves_for
from services.scheduler.explain.waiting_unit import waiting_unit
from shared.domain.component_config import BadConfig
from shared.events import RecordedEvent
from shared.events.descheduling import EvictionCaseClosed, EvictionCaseOpened, Victim
from tests.unit.descheduler.cluster_from_manifests import ManifestCluster

GUIDE = (Path(__file__).parents[3] / "docs/descheduling.md").read_text()
CONFIGS = re.findall(r"```yaml\n(apiVersion.*?)```", GUIDE, re.DOTALL)
CONFIG = CONFIGS[0]
FILES = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", GUIDE, re.DOTALL))
OPEN, CLOSED, DEFRAG, ADMITTED = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)


ROWS = {
    name: re.findall(r"`(\w+)`", re.sub(r"\((?:[^()]|\([^()]*\))*\)", "", arguments))
    for name, arguments in re.findall(r"^\| (\w+) \| .* \| (.*) \|$", GUIDE, re.MULTILINE)
    if name in REGISTRY
}
"""Plugin -> its arguments in the tables of the guide."""


@pytest.mark.parametrize("text", CONFIGS)
def test_each_configuration_of_the_guide_is_valid_and_has_effect(text: str) -> None:
    configuration = read_configuration(text)
    assert configuration.notes == ()
    assert set(configuration.profiles[0].args) <= {*ROWS, MIGRATION_CONTROLLER}


def test_the_guide_lists_every_plugin() -> None:
    assert {*ROWS, MIGRATION_CONTROLLER} == set(REGISTRY)


@pytest.mark.parametrize(("plugin", "argument"), [(name, each) for name, found in ROWS.items() for each in found])
def test_each_argument_of_the_guide_exists(plugin: str, argument: str) -> None:
    """A value of a wrong type is rejected at the argument itself, an unknown argument at the plugin."""
    with pytest.raises(BadConfig) as caught:
        REGISTRY[plugin].read_args({argument: object()}, "args")
    assert caught.value.path == f"args.{argument}"


def test_a_pod_that_has_ended_is_explained_as_removed() -> None:
    victim = Victim("shop/job-1", "uid", "n1", "it has failed (Error)", ended=True)
    opened = EvictionCaseOpened(
        case="removefailedpods-1", cycle=1, profile="p", plugin="RemoveFailedPods", victims=(victim,)
    )
    assert "victim    shop/job-1, which has ended, is removed from n1 (moved)" in lines(opened, 0, None, "moved")


def test_a_pod_that_nothing_makes_anew_is_explained_as_evicted_and_not_as_moved() -> None:
    victim = Victim("shop/own-1", "uid", "n1", "hot", destination="n2", job="j")
    opened = EvictionCaseOpened(case="lownodeload-1", cycle=1, profile="p", plugin="LowNodeLoad", victims=(victim,))
    end = left_node(victim, is_direct=True)
    explanation = ExplainedVictim(victim.pod, victim.node, "n2", "hot", "j", end.outcome, end.why)
    text = "\n".join(case_lines(explained(RecordedEvent("descheduling", 1, opened, 0), None, [explanation])))
    assert "victim    shop/own-1 leaves n1 (evicted: without a successor, it has no controller)" in text


def lines(opened: EvictionCaseOpened, at_ns: int, closed: EvictionCaseClosed | None, state: str) -> str:
    victims = [
        ExplainedVictim(each.pod, each.node, each.destination, each.reason, each.job, state, "", each.ended)
        for each in opened.victims
    ]
    return "\n".join(case_lines(explained(RecordedEvent("descheduling", 1, opened, at_ns), closed, victims))) + "\n"


def test_the_outputs_of_the_example_are_those_of_the_guide() -> None:
    cluster = ManifestCluster(CONFIG)
    cluster.apply(FILES["hot.yaml"], {f"web-{number}": "hot" for number in range(3)})
    cluster.apply(FILES["others.yaml"], {"rest-0": "middle"})
    cluster.report_all()
    opened, at_ns = cluster.cycle(), cluster.now_ns
    assert opened is not None
    assert lines(opened, at_ns, None, "waiting") == OPEN
    cluster.wait(30)
    cluster.delete("web-0")
    cluster.pod("web-3", "cold", owner="web")
    cluster.job(opened.victims[0].job, "Succeeded", bound="web-3")
    cluster.wait(30)
    cluster.report_all(web_1=3_100, web_2=3_000)
    (closed,) = cluster.close()
    assert lines(opened, at_ns, closed, closed.victims[0].outcome) == CLOSED


def test_the_outputs_for_a_waiting_gang_are_those_of_the_guide() -> None:
    cluster = ManifestCluster(next(text for text in CONFIGS if "Defragment" in text))
    cluster.apply(FILES["cluster.yaml"], {"web-0": "n1", "web-1": "n2", "web-2": "n3"})
    cluster.apply(FILES["train.yaml"], {})
    assert cluster.cycle() is None  # it has not waited for long enough
    cluster.wait(70)
    cache, name = cluster.scheduler.cache, "default/train"
    found = moves_for(cache, waiting_unit(cache, name), lambda pod: why_fixed(cache.view, pod), cluster.now_ns)
    planned = answer_of(name, waiting_unit(cache, name), found)
    assert "\n".join(lines_of(planned)) + "\n" == DEFRAG
    opened, at_ns = cluster.cycle(), cluster.now_ns
    assert opened is not None
    (victim,) = opened.victims
    assert [(victim.pod, victim.destination)] == [(move.pod, move.destination) for move in found.moves]
    cluster.delete(victim.pod_uid)
    cluster.pod("web-3", victim.destination, cpu="3", owner="web")
    cluster.job(victim.job, "Succeeded", bound="web-3")
    assert opened.unit is not None
    for pod, node in opened.unit.nodes.items():
        cluster.delete(pod)
        cluster.apply(next(each for each in FILES["train.yaml"].split("---\n") if f"name: {pod}," in each), {pod: node})
    (closed,) = cluster.close()
    assert lines(opened, at_ns, closed, closed.victims[0].outcome) == ADMITTED
