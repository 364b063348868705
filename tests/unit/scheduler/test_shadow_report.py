"""The sums of `koord shadow report`, from the events of a small history."""

from collections.abc import Sequence

from services.scheduler.explain.explain_pod import explain
from services.scheduler.explain.explanation_text import render
from services.scheduler.shadow.compare import Binding, compare
from services.scheduler.shadow.counterfactual_cluster import CounterfactualCluster
from services.scheduler.shadow.placement_comparisons_fold import ShadowHistory
from services.scheduler.shadow.report import ShadowReport, report
from shared.events.log import ConfigApplied, WriterStarted
from shared.kube.node import Taint
from tests.support.scheduling_world import node, pod
from tests.unit.scheduler.beside import THEIRS, Beside, theirs


def recorded(world: Beside) -> ShadowHistory:
    log = ShadowHistory()
    for records in world.logs.values():
        for record in records:
            log.apply(record)
    return log


def followed(world: Beside) -> dict[str, str]:
    """Pod -> where it would be had we been followed."""
    configs = [record for record in world.logs["scheduling"] if isinstance(record.event, ConfigApplied)]
    cluster = CounterfactualCluster([one.found for one in recorded(world).compared.values()], configs)
    for record in world.logs["cluster"]:
        cluster.apply(record)
    return cluster.nodes


def summed_up(world: Beside, schedulers: Sequence[str] = (), since_ns: int = 0, worst: int = 10) -> ShadowReport:
    return report(recorded(world), followed(world), schedulers, since_ns, worst)


def history() -> Beside:
    """Pods on the best node, on an equal one, on a worse one, on one that we refuse, and where we find none."""
    world = Beside()
    world.add_node(node("tainted", cpu="64", memory="64Gi", taints=(Taint(key="k", value="v", effect="NoSchedule"),)))
    world.add_node(node("large", cpu="16", memory="64Gi"))
    world.add_node(node("small", cpu="4", memory="8Gi"))
    world.indexed()
    for name, cpu, to in (
        ("best", "1", "large"),
        ("worse", "1", "small"),
        ("refused", "1", "tainted"),
        ("none", "40", "small"),
    ):
        world.add_pod(theirs(name, cpu=cpu, memory="1Gi"))
        world.bind(name, to, cpu=cpu, memory="1Gi")
    world.compared()
    return world


def test_every_comparison_is_in_one_of_five_numbers() -> None:
    found = summed_up(history())
    assert (found.schedulers, found.profiles, found.compared) == ((THEIRS,), ("koord-scheduler",), 4)
    assert (found.same_node, found.equal_score, found.lower_score, found.refused, found.found_none) == (1, 0, 1, 1, 1)
    assert found.gap.p50 == found.gap.p90 == found.gap.max == found.worst[0].gap > 0
    assert [(one.plugin, one.code, one.detail, one.pods, one.example) for one in found.refused_by] == [
        ("NodeResourcesFit", "InsufficientResource", "cpu", 1, "d/none"),
        ("TaintToleration", "UntoleratedTaint", "k=v:NoSchedule", 1, "d/refused"),
    ]


def test_the_worst_placements_have_each_plugins_part_of_both_totals() -> None:
    (worst,) = summed_up(history()).worst
    assert (worst.pod, worst.theirs, worst.ours) == ("d/worse", "small", "large")
    assert (sum(worst.their_parts.values()), sum(worst.parts.values())) == (worst.their_score, worst.score)
    assert summed_up(history(), worst=0).worst == ()


def test_nodes_hold_what_runs_on_them_or_would_if_we_had_been_followed() -> None:
    world = history()
    world.add_pod(pod("other", cpu="2", on="large", phase="Running", scheduler="volcano"))
    world.add_pod(theirs("best", cpu="1", on="large", phase="Succeeded"))
    found = summed_up(world)
    cpu = {load.node: (load.theirs["cpu"], load.ours["cpu"]) for load in found.nodes}
    # `worse` and `refused` go to `large`; `none` stays, for we have no better node.
    assert cpu == {"large": (2000, 4000), "small": (41_000, 40_000), "tainted": (1000, 0)}
    assert found.nodes[1].theirs["memory"] == 2 << 30
    balance = {one.resource: one for one in found.balance}
    assert balance["cpu"].theirs.max_percent == 1025.0
    assert balance["cpu"].ours.max_percent == 1000.0
    assert balance["memory"].theirs.mean_percent == round((100 * 0.5 / 64 + 100 * 2 / 8 + 100 / 64) / 3, 2)


def test_our_choices_see_each_other_where_they_are_followed() -> None:
    """Evaluated singly, each of them goes to the node that theirs has left empty."""
    world = Beside()
    for name in ("a", "b"):
        world.add_node(node(name, cpu="8"))
    world.bind("first", "a", cpu="1")
    world.indexed()
    for name in ("p", "q", "r", "s"):
        world.add_pod(theirs(name, cpu="1"))
        world.bind(name, "a", cpu="1")
    assert [found.our_node for found in world.compared() if found.pod_uid != "first"] == ["b"] * 4
    where = followed(world)
    assert sorted(where.values()).count("a") in (2, 3)
    found = summed_up(world)
    cpu = {one.resource: one for one in found.balance}["cpu"]
    assert (cpu.theirs.max_percent, cpu.theirs.stddev_percent) == (62.5, 31.25)
    assert cpu.ours.max_percent == 37.5


def test_who_chooses_as_we_do_loads_the_nodes_as_we_would() -> None:
    world = Beside()
    for name in ("a", "b", "c"):
        world.add_node(node(name, cpu="8"))
    world.indexed()
    for number in range(9):
        world.add_pod(theirs(f"p{number}", cpu="700m"))
        world.read()
        world.view.read()
        pod_class = world.view.pods[f"p{number}"].pod_class
        assert pod_class is not None
        best = compare(world.indexed(), Binding(f"p{number}", "", pod_class, "a", 1, world.now_ns)).our_node
        world.bind(f"p{number}", best, cpu="700m")
        world.read()
    found = {one.pod_uid: one.their_node for one in world.compared()}
    assert followed(world) == found
    assert all(load.theirs == load.ours for load in summed_up(world).nodes)


def test_what_was_not_compared_is_counted_by_its_reason() -> None:
    world = Beside()
    world.observe(WriterStarted(epoch=2, release="x"))
    world.bind("before", "a")
    world.list_all()
    world.add_pod(theirs("static", on="a"))
    world.bind("fast", "a")
    world.add_pod(pod("other", on="a", scheduler="volcano"))
    found = summed_up(world, [THEIRS])
    assert found.compared == 0
    assert found.not_compared == {"BoundBefore": 1, "NamedItsNode": 1, "NoLeader": 1}
    assert found.gap.max == 0


def test_only_bindings_since_a_given_instant_count() -> None:
    world = history()
    later = world.now_ns + 60 * 10**9
    world.wait(60)
    world.add_pod(theirs("later"))
    world.bind("later", "large")
    world.compared()
    found = summed_up(world, since_ns=later)
    assert (found.compared, found.first_ns, found.last_ns) == (1, later, later)


def test_why_shows_our_choice_for_another_schedulers_pod() -> None:
    records = [record for records in history().logs.values() for record in records]
    for uid, words in (
        ("best", "bound it to large, as we would have"),
        ("worse", "we would have chosen large ("),
        ("refused", "which we refuse: node(s) had untolerated taint(s); we would have chosen large"),
        ("none", "which we refuse: Insufficient cpu; none passed our filters"),
    ):
        explanation = explain(records, uid)
        assert (explanation.status, words in render(explanation)) == ("bound", True), render(explanation)
    evaluation = explain(records, "worse").evaluation
    assert evaluation is not None
    assert (evaluation.node, evaluation.cycle, len(evaluation.best)) == ("large", 0, 2)
    assert "compared (scheduling/2) at" in render(explain(records, "worse"))
