"""Beside another scheduler: what is compared, on what it rests, and what is left alone."""

from collections.abc import Sequence
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.shadow.follow import Shadow
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Cause, RecordedEvent
from shared.events.cluster import InitialListCompleted
from shared.events.log import WriterStarted
from shared.events.scheduling import PlacementCompared, PodPlaced, Rejections
from shared.kube.node import Taint
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, fold, metric, node, placements, pod
from tests.unit.scheduler.beside import THEIRS, Beside, theirs
from tests.unit.scheduler.interleavings import merged


def two_nodes() -> Beside:
    world = Beside()
    world.add_node(node("large", cpu="16", memory="64Gi"))
    world.add_node(node("small", cpu="2"))
    world.indexed()
    return world


def test_a_worse_choice_is_recorded_with_the_gap_between_the_totals() -> None:
    world = two_nodes()
    world.add_pod(theirs("p", cpu="1", memory="1Gi"))
    world.bind("p", "small", cpu="1", memory="1Gi")
    (found,) = world.compared()
    assert (found.our_node, found.their_node, found.scheduler, found.profile) == (
        "large",
        "small",
        THEIRS,
        "koord-scheduler",
    )
    totals = {best.node: best.score for best in found.evaluation.best}
    assert (found.our_score, found.their_score) == (totals["large"], totals["small"])
    assert found.gap == found.our_score - found.their_score > 0
    assert found.their_rejections == ()
    assert found.their_plugin_scores is not None
    assert sum(found.their_plugin_scores.values()) == found.their_score
    assert found.request == {"cpu": 1000, "memory": 1 << 30}
    assert (found.as_of, found.as_of_ns) == ({"cluster": 5}, world.now_ns)
    assert world.logs["scheduling"][0].cause == Cause("cluster", 6)


def test_the_same_choice_has_no_gap() -> None:
    world = two_nodes()
    world.add_pod(theirs("p"))
    world.bind("p", "large")
    (found,) = world.compared()
    assert (found.our_node, found.gap, found.our_score) == ("large", 0, found.their_score)


def test_a_choice_that_our_filters_reject_records_which_and_why() -> None:
    world = two_nodes()
    world.add_node(node("tainted", taints=(Taint(key="team", value="a", effect="NoSchedule"),)))
    world.add_pod(theirs("p", cpu="3"))
    world.add_pod(theirs("q"))
    world.bind("p", "small", cpu="3")
    world.bind("q", "tainted")
    first, second = world.compared()
    short = Rejections(plugin="NodeResourcesFit", code="InsufficientResource", nodes=1, detail="cpu")
    assert first.their_rejections == (short,)
    assert (first.gap, first.their_score, first.their_plugin_scores, first.our_node) == (0, 0, None, "large")
    assert [(one.plugin, one.code, one.detail) for one in second.their_rejections] == [
        ("TaintToleration", "UntoleratedTaint", "team=a:NoSchedule")
    ]


def test_a_node_that_was_never_observed_is_refused_as_unknown() -> None:
    world = two_nodes()
    world.add_pod(theirs("p"))
    world.bind("p", "nowhere")
    (found,) = world.compared()
    assert [(one.plugin, one.code) for one in found.their_rejections] == [("", "NodeUnknown")]


def test_where_nothing_fits_ours_is_empty() -> None:
    world = two_nodes()
    world.add_pod(theirs("p", cpu="64"))
    world.bind("p", "large", cpu="64")
    (found,) = world.compared()
    assert (found.our_node, found.our_score, found.evaluation.feasible) == ("", 0, 0)
    assert found.their_rejections


def test_a_pod_that_cannot_be_read_is_compared_with_nothing() -> None:
    world = two_nodes()
    world.add_pod(theirs("p", cpu="many"))
    world.bind("p", "large", cpu="many")
    (found,) = world.compared()
    assert (found.our_node, found.their_rejections[0].code) == ("", "UnreadablePod")


def test_each_pod_is_evaluated_after_the_bindings_before_it_and_before_its_own() -> None:
    world = Beside()
    for name in ("a", "b"):
        world.add_node(node(name, cpu="4"))
    world.indexed()
    for name in ("p", "q"):
        world.add_pod(theirs(name, cpu="3"))
    world.bind("p", "a", cpu="3")
    world.bind("q", "b", cpu="3")
    _, second = world.compared()
    assert second.our_node == "b", "a is full"
    assert second.evaluation.feasible == 1
    assert second.as_of["cluster"] == 7


def test_a_pod_that_is_first_seen_bound_is_compared_unless_it_named_its_node_itself() -> None:
    world = two_nodes()
    world.bind("fast", "small")
    world.add_pod(theirs("static", on="small"))
    assert [found.pod_uid for found in world.compared()] == ["fast"]


def test_what_was_bound_before_everything_was_listed_is_not_compared() -> None:
    world = two_nodes()
    world.add_pod(theirs("p"))
    world.observe(WriterStarted(epoch=2, release="x"))
    world.bind("p", "small")
    world.bind("old", "small")
    world.observe(InitialListCompleted(objects=4))
    world.add_pod(theirs("q"))
    world.bind("q", "small")
    assert [found.pod_uid for found in world.compared()] == ["q"]


def test_a_log_whose_beginning_was_dropped_is_as_good_as_listed() -> None:
    world = two_nodes()
    for log in world.logs.values():
        log.clear()
    world.view = SchedulerState()
    world.shadow, world.cache = Shadow(world.view), None
    world.add_node(node("a"))
    world.add_pod(theirs("p"))
    world.bind("p", "a")
    assert len(world.compared()) == 1


def test_later_changes_of_a_bound_pod_other_schedulers_pods_and_ours_are_no_bindings_of_theirs() -> None:
    world = two_nodes()
    world.add_pod(theirs("p"))
    world.bind("p", "small")
    assert len(world.compared()) == 1
    world.bind("p", "small", phase="Running")
    world.add_pod(pod("other", scheduler="volcano"))
    world.add_pod(pod("other", scheduler="volcano", on="small"))
    world.add_pod(pod("ours"))
    world.read()
    world.answer(world.cycle()[1])
    world.add_pod(pod("ours", on="large"))
    assert world.compared() == []


def test_no_cycle_tries_their_pods_even_with_a_profile_of_that_name() -> None:
    world = Beside()
    profiles = config_of(world.view).profiles
    both = {**profiles, THEIRS: profiles["koord-scheduler"]}
    world.cache = CycleInputs(world.view, both, THEIRS)
    world.add_node(node("a"))
    world.add_pod(theirs("p"))
    world.add_pod(pod("q"))
    world.read()
    assert placements(world.cycles()) == {"q": "a"}


def test_a_compared_pod_is_not_compared_again_by_a_successor() -> None:
    world = two_nodes()
    world.add_pod(theirs("p"))
    world.read()
    behind = world.view.encode()  # a replica that stands before the binding, and then reads our log first
    world.bind("p", "small")
    assert len(world.compared()) == 1
    successor = SchedulerState()
    successor.restore(behind)
    for record in world.logs["scheduling"]:
        successor.apply(record)
    shadow = Shadow(successor)
    cache = CycleInputs(successor, config_of(successor).profiles, THEIRS)
    shadow.use_cache(cache, successor.config_digest, THEIRS)
    shadow.look(world.logs["cluster"][-1])
    assert shadow.take() == ()


STEPS = (
    "node", "node", "drop node", "theirs", "theirs", "bind", "bind", "bind", "fast", "ours", "end", "drop pod", "metric",
    "taint", "read", "say", "cycle", "wait", "restart",
)  # fmt: skip
operations = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5), st.integers(0, 5)), min_size=5, max_size=50)


def play(steps: Sequence[tuple[str, int, int]]) -> Beside:
    """A history beside another scheduler that binds by whim: also to nodes that are full, tainted, or not there."""
    world = Beside()
    world.indexed()
    pods: dict[str, str] = {}  # theirs -> node
    for serial, (what, i, j) in enumerate(steps):
        waiting = sorted(name for name, on in pods.items() if not on)
        match what:
            case "node":
                world.add_node(node(f"n{i}", cpu=str(1 + j)))
            case "taint":
                world.add_node(node(f"n{i}", taints=(Taint(key="k", value=str(j), effect="NoSchedule"),)))
            case "drop node":
                world.drop_node(f"n{i}")
            case "theirs":
                pods[f"p{serial}"] = ""
                world.add_pod(theirs(f"p{serial}", cpu=f"{300 * (1 + i)}m"))
            case "bind" if waiting:
                pods[waiting[0]] = f"n{j}"
                world.bind(waiting[0], f"n{j}", cpu=f"{300 * (1 + i)}m")
            case "fast":
                pods[f"p{serial}"] = f"n{j}"
                world.bind(f"p{serial}", f"n{j}", cpu=f"{300 * (1 + i)}m")
            case "ours":
                world.add_pod(pod(f"o{serial}", cpu=f"{300 * (1 + i)}m"))
            case "end" if pods:
                name = sorted(pods)[i % len(pods)]
                world.add_pod(theirs(name, on=pods[name], phase="Succeeded"))
            case "drop pod" if pods:
                name = sorted(pods)[i % len(pods)]
                del pods[name]
                world.drop_pod(name)
            case "metric":
                world.report(metric(f"n{i}", cpu=f"{500 * j}m", at_ns=world.now_ns))
            case "read":
                at = world.view.positions.get("cluster", 0)
                world.read(min(at + 1 + 4 * i, len(world.logs["cluster"])))
            case "say":
                world.append_drafts(world.shadow.take())
            case "cycle":
                for record in world.cycle(batch=1 + i):
                    if isinstance(record.event, PodPlaced):
                        world.answer(record, "suppressed")
            case "wait":
                world.wait(10.0**i / 100)
            case "restart" if j == 0:
                world.list_all()
    world.compared()
    return world


def comparisons(world: World) -> list[tuple[RecordedEvent, PlacementCompared]]:
    return [(r, r.event) for r in world.logs["scheduling"] if isinstance(r.event, PlacementCompared)]


@settings(max_examples=examples(150), deadline=None)
@given(operations)
def test_a_comparison_equals_an_evaluation_on_the_state_just_before_the_binding(
    steps: list[tuple[str, int, int]],
) -> None:
    world = play([("node", 0, 3), ("node", 1, 3), *steps])
    for record, compared in comparisons(world):
        view = fold([r for context, seq in compared.as_of.items() for r in world.logs[context][:seq]])
        assert record.cause is not None
        binding = world.logs["cluster"][record.cause.seq - 1]
        assert binding.seq == view.positions["cluster"] + 1
        shadow = Shadow(view)
        shadow.use_cache(CycleInputs(view, config_of(view).profiles, THEIRS), view.config_digest, THEIRS)
        shadow.look(binding)
        (again,) = shadow.take()
        blank = {"seen": None, "now_ns": None, "config": None}  # what an append puts on its first event
        assert again.event == msgspec.structs.replace(compared, **blank)


@settings(max_examples=examples(150), deadline=None)
@given(operations, st.randoms(use_true_random=False))
def test_any_interleaving_with_comparisons_ends_in_the_same_bytes(
    steps: list[tuple[str, int, int]], random: Random
) -> None:
    world = play([("node", 0, 3), *steps])
    expected = world.view.encode()
    for _ in range(4):
        assert fold(merged(world.logs, random)).encode() == expected
    uids = [compared.pod_uid for _, compared in comparisons(world)]
    assert len(uids) == len(set(uids)), "each pod once"


@settings(max_examples=examples(100), deadline=None)
@given(operations)
def test_looking_changes_nothing(steps: list[tuple[str, int, int]]) -> None:
    world = play([("node", 0, 3), *steps])
    unlooked = fold([*world.logs["cluster"], *world.logs["scheduling"]])
    assert unlooked.encode() == world.view.encode()
