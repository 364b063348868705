"""InterferenceAvoidance: best-effort pods go to other nodes than those with the label of an interference's answer."""

from services.scheduler.explain.explain_pod import explain
from services.scheduler.explain.explanation_text import render
from services.scheduler.plugins.interference_avoidance.plugin import InterferenceAvoidance
from shared.domain.interference import INTERFERED
from shared.domain.qos import LABEL
from shared.kube.node import Node
from shared.kube.pod import Pod
from tests.support.scheduling_world import World, node, placements, pod, use
from tests.unit.scheduler.plugin_harness import PluginHarness
from tests.unit.scheduler.test_explain_pod import history_of

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    score:
      enabled: [{name: InterferenceAvoidance, weight: 2}]
"""


def nodes(*interfered: str) -> list[Node]:
    return [node(name, cpu=cpu, labels={INTERFERED: "true"} if name in interfered else {}) for name, cpu in SIZES]


SIZES = (("big", "16"), ("small", "4"))
"""The bigger one is preferred by every other score."""


def best_effort(name: str = "be") -> Pod:
    return pod(name, labels={LABEL: "BE"})


def test_raw_scores_count_a_node_to_avoid_for_best_effort_pods_alone() -> None:
    one = PluginHarness(InterferenceAvoidance(), nodes("big"))
    assert one.scores(best_effort()) == {"big": 1, "small": 0}
    assert one.scores(pod("bare", cpu="0", memory="0")) == {"big": 1, "small": 0}, "BestEffort by its requests"
    assert one.scores(pod("ls", labels={LABEL: "LS"})) == {"big": 0, "small": 0}
    other_value = PluginHarness(InterferenceAvoidance(), [node("n", labels={INTERFERED: "false"})])
    assert other_value.scores(best_effort()) == {"n": 0}


def placed(*interfered: str, profile: str = PROFILE, incoming: Pod | None = None) -> tuple[str, str]:
    """Places a pod; returns its node and its explanation."""
    world = World()
    use(world, profile)
    for each in nodes(*interfered):
        world.add_node(each)
    subject = incoming or best_effort()
    world.add_pod(subject)
    world.read()
    found = placements(world.cycle())
    uid = subject.metadata.uid
    return found[uid], render(explain(history_of(world, uid)))


def test_a_best_effort_pod_gets_another_node_and_its_explanation_has_the_reason() -> None:
    on, shown = placed("big")
    assert on == "small"
    (line,) = [number for number, text in enumerate(shown.splitlines()) if text.startswith("     big: ")]
    assert "InterferenceAvoidance 0" in shown.splitlines()[line]
    assert "best-effort pods avoid it" in shown.splitlines()[line + 1]
    assert shown.count("best-effort pods avoid it") == 1


def test_other_pods_and_nodes_and_a_profile_without_the_plugin_are_as_before() -> None:
    assert placed()[0] == "big"
    assert placed("big", incoming=pod("ls", labels={LABEL: "LS"}))[0] == "big"
    without = placed("big", profile=PROFILE.replace("{name: InterferenceAvoidance, weight: 2}", ""))
    assert without[0] == "big"
    assert "InterferenceAvoidance" not in without[1]


def test_where_every_node_has_the_label_the_other_scores_decide() -> None:
    on, shown = placed("big", "small")
    assert on == "big"
    assert shown.count("best-effort pods avoid it") == 2


def test_a_label_that_comes_and_goes_counts_in_the_next_cycle() -> None:
    world = World()
    use(world, PROFILE)
    found = []
    for number, interfered in enumerate(((), ("big",), ())):
        for each in nodes(*interfered):
            world.add_node(each)
        world.add_pod(best_effort(f"p{number}"))
        world.read()
        found.append(placements(world.cycle())[f"p{number}"])
    assert found == ["big", "small", "big"]
